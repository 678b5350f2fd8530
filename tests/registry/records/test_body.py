"""What is under a field is what the schema says of it."""

from pydantic import BaseModel, Field, create_model

from toolgate.registry.records.body import FieldDescriptions


class Parent(FieldDescriptions, BaseModel):
    kept: int
    """Under the field,
    over two lines."""

    bare: int

    renamed: int = Field(alias="other")
    """Of one with an alias."""

    redeclared: int
    """Of the parent's."""


class Child(Parent):
    redeclared: int

    described: int = Field(description="In words of its own.")
    """Not this."""


Made = create_model("Made", __base__=Child, kept=(int | None, None), more=(int, 1))


def descriptions(model: type[BaseModel]) -> dict[str, str | None]:
    return {name: field.get("description") for name, field in model.model_json_schema()["properties"].items()}


def test_a_field_is_described_by_the_text_under_it() -> None:
    assert descriptions(Parent) == {
        "kept": "Under the field,\nover two lines.",
        "bare": None,
        "other": "Of one with an alias.",
        "redeclared": "Of the parent's.",
    }


def test_what_is_inherited_keeps_its_text_and_what_is_redeclared_does_not() -> None:
    own = {"redeclared": None, "described": "In words of its own."}

    assert descriptions(Child) == descriptions(Parent) | own
    assert descriptions(Made) == descriptions(Child) | {"kept": None, "more": None}


def test_a_model_within_a_model_is_described_too() -> None:
    holder = create_model("Holder", child=(Child, ...))

    found = holder.model_json_schema()["$defs"]["Child"]["properties"]["kept"]["description"]
    assert found == "Under the field,\nover two lines."
