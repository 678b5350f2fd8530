"""A small MCP server that keeps notes in memory: nine tools, each saying what it does to them.

Run it by hand with `python examples/notes_server.py`; it speaks MCP on standard input and output. The
demo registers it as `notes`. Everything is gone when it stops.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
DESTROYS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

NoteId = Annotated[int, Field(description="The number of the note, as `list_notes` shows it.")]
Tag = Annotated[str, Field(description="A single word, without `#`.", min_length=1, max_length=40)]


class Note(BaseModel):
    """One note."""

    id: int
    title: str
    text: str
    tags: list[str] = []
    archived: bool = False


@dataclass
class Notebook:
    """All notes, by number."""

    notes: dict[int, Note] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def add(self, title: str, text: str, tags: list[str]) -> Note:
        note = Note(id=next(self.numbers), title=title, text=text, tags=tags)
        self.notes[note.id] = note
        return note

    def find(self, note_id: int) -> Note:
        if note_id not in self.notes:
            raise ValueError(f"there is no note {note_id}")
        return self.notes[note_id]


book = Notebook()
book.add("Standup", "Ship the demo. Ask Ada about the release notes.", ["work"])
book.add("Groceries", "Oats, lemons, coffee.", ["home"])
book.add("Idea", "Give each agent only the tools its task needs.", ["work", "ideas"])

server = MCPServer("notes", instructions="Keeps short notes. Search before you add one.")


@server.tool(annotations=READS)
def list_notes(tag: Tag | None = None, *, include_archived: bool = False) -> list[Note]:
    """List the notes, newest last, optionally only those with a tag."""
    return [
        note
        for note in book.notes.values()
        if (include_archived or not note.archived) and (tag is None or tag in note.tags)
    ]


@server.tool(annotations=READS)
def get_note(note_id: NoteId) -> Note:
    """Read one note in full."""
    return book.find(note_id)


@server.tool(annotations=READS)
def search_notes(words: str) -> list[Note]:
    """Find notes whose title or text holds every one of the words, in any case."""
    wanted = words.lower().split()
    return [note for note in book.notes.values() if _holds(note, wanted)]


@server.tool(annotations=READS)
def list_tags() -> dict[str, int]:
    """List all tags, with the number of notes that carry each."""
    tags = [tag for note in book.notes.values() for tag in note.tags]
    return {tag: tags.count(tag) for tag in sorted(set(tags))}


@server.tool(annotations=WRITES)
def add_note(title: str, text: str, tags: list[Tag] | None = None) -> Note:
    """Write a new note and return it with its number."""
    return book.add(title, text, tags or [])


@server.tool(annotations=WRITES)
def append_to_note(note_id: NoteId, text: str) -> Note:
    """Add a line to the end of a note; what is there stays."""
    note = book.find(note_id)
    note.text = f"{note.text}\n{text}"
    return note


@server.tool(annotations=WRITES)
def tag_note(note_id: NoteId, tags: list[Tag]) -> Note:
    """Add tags to a note; those it has stay."""
    note = book.find(note_id)
    note.tags = sorted({*note.tags, *tags})
    return note


@server.tool(annotations=WRITES)
def archive_note(note_id: NoteId) -> Note:
    """Take a note out of the list without deleting it."""
    note = book.find(note_id)
    note.archived = True
    return note


@server.tool(annotations=DESTROYS)
def delete_note(note_id: NoteId) -> str:
    """Delete a note for good. It cannot be undone; archive it unless the user insists."""
    book.find(note_id)
    del book.notes[note_id]
    return f"note {note_id} is deleted"


def _holds(note: Note, words: list[str]) -> bool:
    text = f"{note.title} {note.text}".lower()
    return all(word in text for word in words)


if __name__ == "__main__":
    server.run()
