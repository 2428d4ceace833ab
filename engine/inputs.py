"""What one step reads: token ids, positions, where keys, values and states live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from .errors import DeviceStateError

PADDING = -1  # as a slot: writes nothing real


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring rows of a step that all compute ``length`` tokens."""

    first_row: int
    rows: int
    first_token: int
    length: int

    @property
    def row_slice(self) -> slice:
        return slice(self.first_row, self.first_row + self.rows)

    @property
    def token_slice(self) -> slice:
        return slice(self.first_token, self.first_token + self.rows * self.length)


@dataclass(frozen=True, slots=True)
class StepTensors:
    """What the layers read, for T tokens in R rows (requests) and C block-table columns.

    Token ids are not among them: layers read embeddings.
    """

    positions: Tensor  # int64 [T]
    slot_mapping: Tensor  # int64 [T], row of the KV cache that takes the token; -1: none
    block_table: Tensor  # int32 [R, C]
    seq_lens: Tensor  # int32 [R], tokens of the row up to and with this step
    state_slots: Tensor  # int64 [R]; -1: none

    @classmethod
    def empty(
        cls, tokens: int, rows: int, columns: int, *, device: str | torch.device, pinned: bool
    ) -> StepTensors:
        """Zeroed tensors of this capacity on ``device`` (pinned host memory if ``pinned``)."""

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device, pin_memory=pinned)

        return cls(
            positions=zeros(tokens),
            slot_mapping=zeros(tokens),
            block_table=zeros(rows, columns, dtype=torch.int32),
            seq_lens=zeros(rows, dtype=torch.int32),
            state_slots=zeros(rows),
        )

    def part(self, tokens: int, rows: int, columns: int) -> StepTensors:
        """Contiguous views of the first elements, in the shapes of a smaller step."""
        return StepTensors(
            self.positions[:tokens],
            self.slot_mapping[:tokens],
            self.block_table.flatten()[: rows * columns].view(rows, columns),
            self.seq_lens[:rows],
            self.state_slots[:rows],
        )

    def cells(self) -> tuple[Tensor, ...]:
        """The tensors in the order of the fields."""
        return tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A step as host values, before they are put anywhere."""

    ids: Sequence[int]
    positions: Sequence[int]
    slot_mapping: Sequence[int]
    block_table: Sequence[Sequence[int]]  # ragged: one row's blocks each
    seq_lens: Sequence[int]
    state_slots: Sequence[int]
    groups: tuple[Group, ...]
    carried: int  # the first rows whose token only the device has; their ids are 0

    @property
    def rows(self) -> int:
        return len(self.seq_lens)

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def columns(self) -> int:
        return max(len(blocks) for blocks in self.block_table)

    def padded(self, rows: int, *, live: bool = False) -> StepInputs:
        """The same uniform step with inert rows up to ``rows``.

        E35: WAW on real pages and states. An inert row writes nowhere real and sees one position.
        ``live`` is the fault: such rows write page 0 and state 0.
        """
        (group,) = self.groups
        nowhere = 0 if live else PADDING
        more, tokens = rows - self.rows, (rows - self.rows) * group.length
        return StepInputs(
            [*self.ids, *[0] * tokens],
            [*self.positions, *[0] * tokens],
            [*self.slot_mapping, *[nowhere] * tokens],
            [*self.block_table, *[[0]] * more],
            [*self.seq_lens, *[1] * more],
            [*self.state_slots, *[nowhere] * more],
            (Group(0, rows, 0, group.length),),
            self.carried,
        )

    def write(self, target: StepTensors) -> None:
        """Puts all but the ids into host tensors of exactly this many tokens and rows.

        Raises DeviceStateError if the block table has fewer columns than a row has blocks.
        """
        columns = target.block_table.shape[1]
        if self.columns > columns:
            raise DeviceStateError(f"block table of {columns} columns for {self.columns} blocks")
        table = [[*blocks, *[0] * (columns - len(blocks))] for blocks in self.block_table]
        values = (self.positions, self.slot_mapping, table, self.seq_lens, self.state_slots)
        for cell, value in zip(target.cells(), values, strict=True):
            cell.copy_(torch.tensor(value, dtype=cell.dtype))
