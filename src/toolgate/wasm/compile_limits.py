"""How far the compiler of modules may go. Apart from it, so that to know them is not to load wasmtime."""

from typing import Final

MAX_CPU_S: Final = 60
MAX_MEMORY_BYTES: Final = 1024 * 1024 * 1024
"""Of address space. A module of a hundred thousand small functions takes two thirds of it."""
MAX_COMPILED_BYTES: Final = 256 * 1024 * 1024
MAX_FUNCTIONS: Final = 100_000
"""Those take some 12 s."""
MAX_IMPORTS: Final = 1_000
MAX_EXPORTS: Final = 1_000
"""They are gone through for each run, before its deadline can end it: 50 ms, and four times that for twice as
many."""
