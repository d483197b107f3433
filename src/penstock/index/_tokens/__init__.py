"""Text into samples of tokens: what `create_tokenize_and_index_jsonl_text_func` is made of."""
