"""VectorCall: a call whose answer is made from vectors."""

from collections.abc import Iterator, Sequence
from typing import Any

from headway.server.answering.call import Call, CallOwner
from headway.server.answering.choice import Choice
from headway.server.answering.routed import Routed
from headway.server.config.sections.prices import PriceSettings
from headway.server.protocol.request import VectorForm
from headway.server.protocol.vectors.response import vector_json
from headway.vectors.model_card import ModelCard

# An answer with this many vectors or bytes of them, or more, is sent piece by piece.
LONG, LONG_BYTES = 64, 32 * 1_024


class VectorCall(Call):
    """A call whose requests each return a vector instead of tokens."""

    def __init__(
        self,
        routed: Routed,
        form: VectorForm,
        created: int,  # Unix seconds
        choices: Sequence[Choice],
        prices: PriceSettings,
        owner: CallOwner,
        card: ModelCard,
    ) -> None:
        super().__init__(routed, created, choices, prices, owner)
        self._form, self._card = form, card

    @property
    def is_long(self) -> bool:
        size = sum([len(each.answer.vector) for each in self.choices.values()])
        return len(self.choices) >= LONG or size >= LONG_BYTES

    def response(self) -> Iterator[str]:
        vectors = [each.answer.vector for each in self.choices.values()]
        known = {name: each for name, each in self._metrics().items() if each is not None}
        ends = {"usage": self.usage(), "metrics": known}
        return vector_json(self._form, self.about, vectors, self._card, ends)

    def usage(self) -> dict[str, Any]:
        prompt = self.tokens[0]
        return {"prompt_tokens": prompt, "total_tokens": prompt}
