"""Token documents of Megatron-LM file pairs."""
