"""Which tiers a test is in, from what its code and the code of its fixtures can reach.

Reached is what a piece of code names, and what that names. A method is reached when its class is and when
anything that is reached names an attribute like it. So what is missed is code that is found by a string only:
`importlib`, `getfixturevalue`. There a test says its tier itself, and tests/tiers/guard.py fails the one that
does not.
"""

from functools import cache

from tests.tiers.source import Code, Name, Source

NEEDS = {
    "keras": ("keras", "tensorflow"),
    "process": (
        "subprocess.Popen", "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output",
        "multiprocessing.get_context", "multiprocessing.Process", "concurrent.futures.ProcessPoolExecutor",
        "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pexpect",
    ),
    "server": (
        "benchmarks.private_servers", "moto.server", "moto.moto_server", "socketserver", "http.server",
        "socket.create_server", "socket.socket",
    ),
    "boinc": ("tests.boinc.boinc_client", "tests.boinc.standin"),
}  # fmt: skip
"""What a tier's tests reach one of: modules, or names in them."""


@cache
def tiers_of_name(name: Name) -> frozenset[str]:
    """The tiers that a name stands for."""
    dotted = f"{name}."
    return frozenset(tier for tier, needs in NEEDS.items() if any(dotted.startswith(f"{need}.") for need in needs))


def loads_keras(source: Source, module: str) -> bool:
    """Whether the import of a module is enough."""
    return not source.imported_with(module).isdisjoint(NEEDS["keras"])


@cache
def tiers_of(source: Source, starts: frozenset[tuple[Name, str]]) -> frozenset[str]:
    """The tiers of a test, from its own function and its fixtures': symbols, with the method's name where there
    is one.
    """
    tiers: set[str] = set()
    seen: set[Name] = set()
    attributes: set[str] = set()
    methods: dict[str, list[Code]] = {}
    """Reached classes that nothing has named yet."""
    waiting: list[Code] = []

    def reach(name: Name) -> None:
        if name not in seen:
            seen.add(name)
            tiers.update(tiers_of_name(name))
            waiting.append(source.code(name))

    for name, method in starts:
        attributes.add(method)
        reach(name)
        if loads_keras(source, name.module):
            tiers.add("keras")
    while waiting:
        code = waiting.pop()
        for attribute in code.attributes - attributes:
            attributes.add(attribute)
            waiting += methods.pop(attribute, ())
        for method, its_code in code.methods.items():
            if method in attributes:
                waiting.append(its_code)
            else:
                methods.setdefault(method, []).append(its_code)
        for name in code.names:
            reach(name)
    return frozenset(tiers)
