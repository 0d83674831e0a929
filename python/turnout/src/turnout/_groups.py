"""Groups of the feed as numpy arrays, read from NDJSON or Arrow."""

from __future__ import annotations

import base64
import importlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

try:
    import numpy as np
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError("turnout.feed needs numpy: pip install 'turnout[feed]'", name="numpy") from missing

if TYPE_CHECKING:
    from numpy.typing import NDArray

_JSON_COLUMNS = ("rewards", "turns", "rollout_top_logprobs")
_NUMBER_COLUMNS = ("tokens", "loss_mask", "rollout_log_probs", "versions", "turn_rewards", "token_rewards")


@dataclass(frozen=True, eq=False)
class Row:
    """A trajectory: N tokens in T turns. Arrays are writable and belong to the row."""

    session: str
    trajectory: str
    model: str
    tokens: NDArray[np.int32]  # [N] token ids, prompts included
    loss_mask: NDArray[np.uint8]  # [N] 1: sampled
    logprobs: NDArray[np.float32]  # [N] natural logarithms; 0: not sampled, NaN: not known
    versions: NDArray[np.int32]  # [N] indexes of `Group.version_names`; -1: not sampled, or not known
    lag: int  # how many versions the oldest of its weights is behind `Group.version`
    reward: float | None
    rewards: dict[str, float]  # parts of the reward, by name
    turn_rewards: NDArray[np.float64]  # [T] NaN: none
    token_rewards: NDArray[np.float64] | None  # [N] NaN: none; None: no token has one
    turns: list[dict[str, Any]]  # [T] `id`, `from` and `to` (positions in `tokens`), `finish_reason`, `worker`
    finish_reason: str | None  # of the last turn
    flags: list[str]
    labels: list[str]
    # [N - 1, layers, experts per token]: the ids of routed experts; None: not recorded. [N - 1, x] where the layers are not known
    routed_experts: NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.int32] | None
    top_logprobs: list[Any] | None  # [N] the most likely tokens of each position; None: not recorded

    def to_torch(self) -> dict[str, Any]:
        """All fields by name, arrays as tensors that share no memory with the row (uint16 as int32).

        Raises `ModuleNotFoundError` where torch is not installed.
        """
        torch = importlib.import_module("torch")

        def tensor(value: Any) -> Any:
            if not isinstance(value, np.ndarray):
                return value
            return torch.tensor(value.astype(np.int32) if value.dtype == np.uint16 else value)

        return {field.name: tensor(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True, eq=False)
class Group:
    """The trajectories of one prompt, leased to this consumer. `id` is the same in every delivery of the group."""

    id: int
    lease: str
    cursor: int
    name: str
    tenant: str
    because: str  # why the group is ready: all, first, deadline or closed
    size: int  # the members that were wanted; a session may have several rows
    deliveries: int  # 1: the first
    ready_at_ms: float  # Unix time, milliseconds
    version: str | None  # the newest weights that the router knows
    version_names: list[str]
    rows: list[Row]

    def to_torch(self) -> list[dict[str, Any]]:
        """`Row.to_torch` of every row."""
        return [row.to_torch() for row in self.rows]


def read_ndjson(received: bytes, is_whole: bool) -> list[Group]:
    """The groups of a response; of one that is not whole those that came whole."""
    lines = received.split(b"\n")
    # What follows the last line feed is nothing, or half a group.
    groups = [json.loads(line) for line in lines[:-1]]
    return [_group(group, group["rows"]) for group in groups]


def read_arrow(received: bytes, is_whole: bool) -> list[Group]:
    """`read_ndjson` of an Arrow IPC stream; needs pyarrow."""
    arrow: Any = importlib.import_module("pyarrow")
    groups: list[Group] = []
    if not received:
        return groups
    try:
        for batch in arrow.ipc.open_stream(io.BytesIO(received)):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            rows = [{name: _cell(name, column[i]) for name, column in columns.items()} for i in range(batch.num_rows)]
            groups.append(_group(rows[0], rows))
    except (arrow.ArrowException, OSError):
        # Half a group at the end of a response that broke off.
        if is_whole:
            raise
    return groups


def _cell(name: str, scalar: Any) -> Any:
    """The value of a column in a row, as NDJSON has it; numbers as an array."""
    if not scalar.is_valid:
        return None
    if name in _NUMBER_COLUMNS:
        return scalar.values.to_numpy(zero_copy_only=False)
    return json.loads(scalar.as_py()) if name in _JSON_COLUMNS else scalar.as_py()


def _group(head: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> Group:
    named = {field.name: head[field.name] for field in fields(Group) if field.name not in ("name", "rows")}
    return Group(**named, name=head["group"], rows=[_row(row) for row in rows])


def _row(row: Mapping[str, Any]) -> Row:
    same = ("session", "trajectory", "model", "lag", "reward", "rewards", "turns", "finish_reason", "flags", "labels")
    token_rewards = row["token_rewards"]
    return Row(
        **{name: row[name] for name in same},
        # null is NaN.
        tokens=np.array(row["tokens"], np.int32),
        loss_mask=np.array(row["loss_mask"], np.uint8),
        logprobs=np.array(row["rollout_log_probs"], np.float32),
        versions=np.array(row["versions"], np.int32),
        turn_rewards=np.array(row["turn_rewards"], np.float64),
        token_rewards=None if token_rewards is None else np.array(token_rewards, np.float64),
        routed_experts=_experts(row),
        top_logprobs=row.get("rollout_top_logprobs"),
    )


def _experts(row: Mapping[str, Any]) -> Any:
    experts = row.get("routed_experts")
    if experts is None:
        return None
    if isinstance(experts, bytes):
        kind, shape, packed = row["routed_experts_type"], row["routed_experts_shape"], experts
    else:
        kind, shape, packed = experts["dtype"], experts["shape"], base64.b64decode(experts["base64"])
    return np.frombuffer(packed, np.dtype(kind).newbyteorder("<")).reshape(shape).astype(np.dtype(kind))
