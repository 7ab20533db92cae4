"""A tokenizer without a vocabulary file: one id per byte of UTF-8, for models that come without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SIZE = 256


class ByteTokenizer:
    """What the suite asks of a tokenizer, over bytes.

    Attributes:
        eos_token_id: none, so outputs end at their budget or at a stop string.
        chat_template: how a conversation is written out.
    """

    name_or_path = "bytes"
    eos_token_id: int | None = None
    bos_token_id: int | None = None
    chat_template = "{role}: {content}\n"

    def __call__(self, text: str) -> dict[str, list[int]]:
        """``input_ids`` of a text, nothing added."""
        return {"input_ids": list(text.encode("utf-8"))}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text; bytes that are no UTF-8 become the replacement character, ids from 256 on vanish."""
        return bytes(i for i in ids if i < SIZE).decode("utf-8", "replace")

    def apply_chat_template(
        self, conversation: Sequence[Mapping[str, str]], add_generation_prompt: bool = False, **options: Any
    ) -> list[int]:
        """Ids of a conversation in ``chat_template``, up to the opening of a reply if one is due."""
        text = "".join(self.chat_template.format(**message) for message in conversation)
        opening = "assistant: " if add_generation_prompt else ""
        return self(text + opening)["input_ids"]

    def get_vocab(self) -> dict[str, int]:
        """Every byte as ``<0xHH>``."""
        return {f"<0x{byte:02X}>": byte for byte in range(SIZE)}
