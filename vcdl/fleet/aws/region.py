"""One service of AWS in one region: the only place that calls boto3, and where its exceptions end."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from vcdl.fleet.aws.refusal import refusal

Answer = Mapping[str, Any]

_CONFIG = Config(
    # Adaptive: slows the client down when AWS throttles, beside repeating what throttling and faults ended.
    retries={"mode": "adaptive", "total_max_attempts": 6},
    connect_timeout=10,
    read_timeout=60,
    user_agent_extra="vcdl-fleet",
)
_VALUES = 100
"""Of one list; AWS takes no more types at once, and 200 values in a filter."""


class AwsRegion:
    """Calls by their name in boto3; each may be repeated, and raises AwsRefusal."""

    def __init__(self, session: Any, name: str, service: str = "ec2") -> None:
        """`session`: a boto3.Session; nothing is called until it is needed."""
        self._session = session
        self._service = service
        self.name = name

    def call(self, operation: str, **arguments: Any) -> Answer:
        """What AWS answers. Raises AwsRefusal."""
        try:
            answer: Answer = getattr(self._client, operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise refusal(error, self.name, operation) from error
        return answer

    def all_of(self, operation: str, items: str, **arguments: Any) -> Iterator[Any]:
        """The items of all pages; `items`: where they are in the answer, in JMESPath. Raises AwsRefusal."""
        try:
            for item in self._client.get_paginator(operation).paginate(**arguments).search(items):
                if item is not None:
                    yield item
        except (ClientError, BotoCoreError) as error:
            raise refusal(error, self.name, operation) from error

    def connect(self) -> None:
        """Make the client, which a session does in one thread only. Raises AwsRefusal."""
        try:
            _ = self._client
        except BotoCoreError as error:
            raise refusal(error, self.name, "Client") from error

    @cached_property
    def _client(self) -> Any:
        return self._session.client(self._service, region_name=self.name, config=_CONFIG)

    def close(self) -> None:
        """Let go of connections."""
        if "_client" in self.__dict__:
            self._client.close()


def batches(values: Iterable[str]) -> Iterator[list[str]]:
    """As many as AWS takes at once, again and again."""
    rest = list(values)
    while rest:
        yield rest[:_VALUES]
        rest = rest[_VALUES:]


def named(name: str, *values: str) -> Mapping[str, Any]:
    """One of AWS's filters."""
    return {"Name": name, "Values": list(values)}
