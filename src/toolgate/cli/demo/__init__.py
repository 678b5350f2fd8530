"""`toolgate up --demo`: real servers, three tasks and, on request, a small model."""
