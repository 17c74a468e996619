"""What `headway check` finds out about a decoder (Shape, Room), and its table."""

from dataclasses import dataclass

from rich.table import Table

from headway.executor.torch.memory.memory_plan import human_bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """The facts about a checkpoint that hold on any machine; sizes in bytes."""

    architecture: str
    parameters: int
    active: int  # parameters that one token uses: fewer in a mixture of experts
    dtype: str  # of the computation; with +int8, matrices are in 8 bits
    weights: int
    kv_per_token: int
    kv_counted: str  # how kv_per_token is computed, in words
    attention: str  # MHA, GQA or MQA
    windowed_layers: int  # layers with a sliding window; they keep all of their KV
    context: int  # tokens
    headers: bool  # whether the weights are here, with their names and shapes checked
    tokenizer: bool
    chat_template: bool
    makes: str = "text and embeddings"


@dataclass(frozen=True, slots=True)
class Room:
    """What fits on this machine with the engine's default limits; sizes in bytes."""

    device: str
    free: int
    second_head: int  # the second copy of a tied head
    activations: int
    block_size: int  # tokens
    blocks: int
    fit: int  # blocks that fit into the memory
    usable: int  # blocks that the default limits can fill
    bound: str  # what bounds the blocks: `memory` or `limits`
    prompt_tokens: int
    answer_tokens: int
    batch: int  # requests of these lengths whose KV fits at once


def table_of(model: str, shape: Shape, room: Room | None) -> Table:
    """The verdict as a table, with rounded sizes."""
    table = Table(title=model, title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in {**_shape_rows(shape), **(_room_rows(room) if room else {})}.items():
        table.add_row(name, text)
    return table


def _shape_rows(shape: Shape) -> dict[str, str]:
    active = "" if shape.active == shape.parameters else f", {shape.active:,} for one token"
    kept = f" ({shape.windowed_layers} layers have a sliding window: it saves no memory here)"
    return {
        "architecture": f"{shape.architecture}: it makes {shape.makes}",
        "parameters": f"{shape.parameters:,}{active}",
        "weights": f"{human_bytes(shape.weights)} in {shape.dtype}"
        + ("" if shape.headers else " (not here: their headers were not read)"),
        "KV per token": f"{human_bytes(shape.kv_per_token)} = {shape.kv_counted} "
        + f"({shape.attention})"
        + (kept if shape.windowed_layers else ""),
        "context": f"{shape.context:,} tokens",
        "tokenizer": "yes" if shape.tokenizer else "none",
        "chat template": "yes" if shape.chat_template else "none",
    }


def _room_rows(room: Room) -> dict[str, str]:
    head = f", less {human_bytes(room.second_head)} for the tied head's second copy"
    return {
        "memory": f"{human_bytes(room.free)} free ({room.device})"
        + (head if room.second_head else ""),
        "activations": human_bytes(room.activations),
        "blocks": f"{room.blocks:,} of {room.block_size} tokens (bound by {room.bound}: "
        f"{room.fit:,} fit, {room.usable:,} usable by default)",
        "largest batch": f"{room.batch:,} requests of {room.prompt_tokens:,} + "
        f"{room.answer_tokens:,} tokens, if all blocks that fit are used",
    }
