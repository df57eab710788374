# SPDX-License-Identifier: Apache-2.0
"""Variant: what a kernel computes beside softmax(scale q k) v."""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from attnloom._errors import SpecError, refused


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise SpecError("SPEC_INVALID", "$", f"the key {key!r} stands twice in one object")
    return dict(pairs)


def parse_object(text: str, what: str) -> dict[str, Any]:
    """A JSON object, read as strictly as the library reads a spec. Raises SpecError."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError("SPEC_INVALID", "$", f"{what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise SpecError("SPEC_INVALID", "$", f"{what} must be a JSON object, given {type(value).__name__}")
    return value


class Variant:
    """The `variant` of a spec: masks, params and functors (docs/SPEC.md, "variant"). Immutable.

    Variant({"name": "soft_cap", "mask": {"causal": True}, "params": [{"name": "cap", "type": "f32"}],
             "logits_transform": "return cap * loom::tanh(logits / cap);"})

    Its fields are checked when it is used: Attention raises SpecError, whose field is the path in the spec.
    """

    def __init__(self, fields: Mapping[str, Any] | None = None, /) -> None:
        if fields is not None and not isinstance(fields, Mapping):
            raise refused(
                "variant", f"must be a mapping, given {type(fields).__name__}", "Variant.from_json takes text"
            )
        try:
            self._text = json.dumps(dict(fields or {}), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise refused("variant", f"holds what JSON has not: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> "Variant":
        """Of a variant object, or of a whole spec, whose other fields are those of Attention. Raises SpecError."""
        fields = parse_object(text, "the variant")
        if "attnloom" in fields:
            variant = fields.get("variant", {})
            if not isinstance(variant, dict):
                raise SpecError("SPEC_INVALID", "$.variant", f"must be an object, given {type(variant).__name__}")
            fields = variant
        return cls(fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Variant":
        """from_json of a file. Raises OSError where it cannot be read, and SpecError."""
        return cls.from_json(pathlib.Path(path).read_text(encoding="utf-8"))

    def to_dict(self) -> dict[str, Any]:
        """A copy of its fields."""
        fields: dict[str, Any] = json.loads(self._text)
        return fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variant) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict(), sort_keys=True))

    def __repr__(self) -> str:
        return f"Variant({self.to_dict()!r})"
