"""The answer that says one error about everything a request asked for, as Kafka's `AbstractRequest.getErrorResponse`.

Responses mirror their requests: what a request lists (topics, partitions, groups, resources) its response lists again,
each with an error code. So the answer is made from the tables, for every API alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kclient_quota.wire.messages import API
from kclient_quota.wire.schema import Request, Response, Struct, struct_class

if TYPE_CHECKING:
    from kclient_quota.wire.schema import Field

_PRODUCE = 0
_TYPES = ("String", "Int32", "Uuid", "Int8")
_OFFSETS = {(_PRODUCE, "base_offset"), (1, "high_watermark"), (9, "committed_offset")}
"""Fields of Produce, Fetch and OffsetFetch whose default might be an offset; Kafka says -1 beside an error."""


def error_answer(request: Request, version: int, error_code: int, message: str | None = None) -> Response | None:
    """A response with `error_code` wherever there is room for one; None if the request wants no response (acks=0).

    Args:
        request: what was asked.
        version: of the API that the client speaks.
        error_code: Kafka's number.
        message: the reason in words, where the response has room for words.
    """
    if request.__schema__.api_key == _PRODUCE and getattr(request, "acks", 1) == 0:
        return None
    response = API[request.__schema__.api_key].response()
    _fill(request, response, version, error_code, message)
    return response


def _fill(asked: Any, answer: Struct, version: int, error_code: int, message: str | None) -> bool:
    """Whether there was any room for the error in `answer`."""
    has_room = False
    specs = [spec for spec in answer.__fields__ if version in spec.versions]
    code = _code_field(specs)
    for spec in specs:
        if spec.name == code:
            setattr(answer, spec.name, error_code)
            has_room = True
        elif (type(answer).__root__.__schema__.api_key, spec.name) in _OFFSETS:
            setattr(answer, spec.name, -1)
        elif spec.name == "error_message" and message is not None:
            answer.error_message = message  # type: ignore[attr-defined]  # the table has just said so
        elif spec.type == "Records":
            setattr(answer, spec.name, b"")  # as Kafka's; librdkafka takes null for an answer that is broken
        elif spec.is_array and spec.is_struct and isinstance(asked, Struct):
            items = _mirrored(asked, spec, type(answer).__root__, version, error_code, message)
            if items:
                setattr(answer, spec.name, items)
                has_room = True
    return has_room


def _code_field(specs: list[Field]) -> str | None:
    """`error_code`, or what stands in its place (`partition_error_code`): beside it, such a field is about less."""
    names = [spec.name for spec in specs if spec.name.endswith("error_code")]
    return "error_code" if "error_code" in names else next(iter(names), None)


def _mirrored(
    asked: Struct, spec: Field, root: type[Struct], version: int, error_code: int, message: str | None
) -> list[Struct]:
    """One struct of `spec` with the error for each thing that was asked for; none where they have no error codes."""
    cls, items = struct_class(root, spec.type), []
    for one in _asked_items(asked, version):
        answer = cls()
        _copy_names(one, answer, version)
        if not _fill(one, answer, version, error_code, message):
            return []
        items.append(answer)
    return items


def _asked_items(asked: Struct, version: int) -> list[Any]:
    lists = (getattr(asked, spec.name) for spec in asked.__fields__ if spec.is_array and version in spec.versions)
    return next((found for found in lists if found), [])


def _copy_names(one: Any, answer: Struct, version: int) -> None:
    """Name in the answer what was asked for: by the same field, else by the first of the same type."""
    if not isinstance(one, Struct):
        kind = "String" if isinstance(one, str) else "Int32" if isinstance(one, int) else "Uuid"
        for spec in _plain(answer, kind, version)[:1]:
            setattr(answer, spec.name, one)
        return
    for kind in _TYPES:
        given, wanted = _plain(one, kind, version), _plain(answer, kind, version)
        same = {spec.name for spec in given} & {spec.name for spec in wanted}
        for name in same:
            setattr(answer, name, getattr(one, name))
        if given and wanted and not same:
            setattr(answer, wanted[0].name, getattr(one, given[0].name))
    entity = getattr(one, "entity", None)
    if isinstance(entity, list) and hasattr(answer, "entity"):
        cls: Any = struct_class(type(answer).__root__, "EntityData")
        answer.entity = [cls(entity_type=part.entity_type, entity_name=part.entity_name) for part in entity]


def _plain(struct: Struct, kind: str, version: int) -> list[Field]:
    return [
        spec
        for spec in struct.__fields__
        if spec.type == kind and not spec.is_array and version in spec.versions and not spec.name.startswith("error_")
    ]
