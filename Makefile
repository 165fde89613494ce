# Two commands for a fresh machine: `make demo` and `make test`. `make quick` while you work; `make lock` renews the pinned
# dependencies. The tiers of tests: tests/README.md.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin

# The tests start hundreds of interpreters.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick quick-tests test check style markdown prose types format docs publish-docs audit nightly soak fuzz test-boinc test-server release lock clean

demo: $(VENV)/installed
	@./deploy/system-packages --optional dataset-fashion-mnist
	@echo "afterwards: \`. $(BIN)/activate\` makes vcdl a command of this shell"
	$(BIN)/vcdl run examples/fashion_mnist.yaml

# One worker more than there are cores, as tests wait a lot. Their order: tests/conftest.py.
SPREAD = -n $(shell expr $$(nproc) + 1) --dist worksteal

# Checks run beside the tests. Files of tests lie in memory where the machine has such a folder, in one of this run's own:
# pytest would remove those of another run that has not ended.
quick: $(VENV)/installed-dev
	@$(MAKE) --no-print-directory --jobs 2 quick-tests check

quick-tests:
	@folder=$$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d) && trap "rm -rf $$folder" EXIT && \
	TMPDIR=$$folder $(BIN)/python -m pytest -m quick -n auto --dist worksteal -o tmp_path_retention_policy=none

test: $(VENV)/installed-dev check
	$(BIN)/python -m pytest -m "not (soak or nightly)" $(SPREAD)

# Written by hand; docs/api/ is read by another parser, and reports in docs/experiments/ are written by `python -m benchmarks.experiments`.
MARKDOWN = *.md tests/*.md docs/*.md docs/experiments/index.md docs/decisions/*.md docs/measured/*.md

check: $(VENV)/installed-dev style markdown prose types

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

markdown:
	$(BIN)/mdformat --check $(MARKDOWN)

prose:
	$(BIN)/python .ci/prose.py vcdl

types:
	$(BIN)/mypy

# Code and prose in their one form: what `make check` asks of both.
format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mdformat $(MARKDOWN)

# The site of docs/, in site/: every link between its pages leads somewhere, or it is not built.
docs: $(VENV)/installed-dev
	$(BIN)/zensical build --strict --clean
	$(BIN)/python .ci/llms.py docs site/llms.txt

# The site beside those of other versions, for a web server: make publish-docs TO=/srv/vcdl-docs
publish-docs: docs
	$(BIN)/python .ci/publish_docs.py site $(TO)

# Known holes in the packages of the lock file; asks the package index, which must answer.
audit: $(VENV)/installed-dev
	$(BIN)/uv tool run --from pip-audit==2.10.1 pip-audit --requirement requirements.lock --require-hashes --disable-pip --strict

nightly: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m nightly $(SPREAD)

soak: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m soak

# Hostile and damaged bytes for whatever reads bytes of others; inputs that crash are kept in fuzz/crashes/.
FUZZ_SECONDS ?= 600
fuzz: $(VENV)/installed-dev
	$(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS) --seed $$(date +%Y%m%d)

# Against a real BOINC server, on its machine and as the project's user: make test-boinc PROJECT_DIR=~/projects/trial
# The cheapest that tell the most come first (tests/README.md); all of them take three quarters of an hour.
BOINC_TESTS ?= jobs operator keys trouble hosts kept profile hostile upgrade server load
test-boinc: $(VENV)/installed-dev
	VCDL_BOINC_PROJECT_DIR=$(PROJECT_DIR) $(BIN)/python -m pytest -p no:cacheprovider \
		$(BOINC_TESTS:%=tests/boinc/test_real_%.py)

# A server's life on machines of its own (root, debootstrap, systemd-nspawn): make test-server BOINC=/path/to/a/built/tree
test-server: $(VENV)/installed-dev
	VCDL_BOINC_TREE=$(BOINC) $(BIN)/python -m pytest -s -p no:cacheprovider tests/boinc/server/test_whole*.py

# What a release publishes, in dist/; the other steps, some on other machines: docs/release.md
release: test docs
	PYTHON=$(BIN)/python .ci/release

$(VENV)/installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

# In CI only: cloud-init would run at the next boot of this machine, a browser is a large download, and prometheus, which
# brings promtool, starts a daemon.
$(VENV)/installed-dev: requirements-dev.lock pyproject.toml
	./deploy/system-packages dataset-fashion-mnist redis-server mariadb-server libmariadb-dev boinc-client pkg-config gcc $(if $(CI),cloud-init chromium prometheus mmdebstrap)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --requirement requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@ $(VENV)/installed

LOCK = $(BIN)/uv pip compile --quiet --upgrade pyproject.toml --universal --no-emit-index-url --no-annotate --no-header \
	--generate-hashes --extra cpu --extra digits --extra plot

lock: $(VENV)/installed-dev
	$(LOCK) --extra server --extra fleet --extra gcp --extra data --extra text --extra hub --extra web --extra sweep --extra dev --extra docs -o requirements-dev.lock
	$(LOCK) --constraint requirements-dev.lock -o requirements.lock
	for backend in jax jax-gpu tensorflow tensorflow-gpu; do $(BIN)/uv pip compile --quiet --upgrade --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  wrappers/runtime/$$backend.in -o wrappers/runtime/$$backend.lock || exit 1; done
	for kind in cpu gpu; do \
		sed -n "s/^$$kind = \[\(\".*\"\)\]$$/\1/p" pyproject.toml | tr -d '"' | cat - deploy/instance.in | \
		$(BIN)/uv pip compile --quiet - --universal --python-version 3.11 --constraint requirements.lock \
			--format pylock.toml -o pylock.$$kind.toml && \
		$(BIN)/python .ci/instance_requirements.py pylock.$$kind.toml vcdl/fleet/machine/requirements-$$kind.txt && \
		rm pylock.$$kind.toml || exit 1; \
	done

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .cache site dist
