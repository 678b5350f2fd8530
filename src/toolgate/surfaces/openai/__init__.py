"""The chat door: `/v1/chat/completions`, `/v1/responses` and `/v1/models`, as OpenAI's clients speak them."""
