"""A random Llama of a few million weights in Hugging Face's layout: `python hf_model.py FOLDER`.

Runs with the Python of the server that will load it (torch and transformers are not ours). Its tokens are the words
of our random prompts. Greedy answers never end by themselves: the end token's logit is 0, the largest of 300 random
ones is not.
"""

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    """One token a word; anything else is <unk>."""
    names = ["<unk>", "<end>", *words]
    made = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.decoder = decoders.Fuse()
    told = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", eos_token="<end>")
    told.chat_template = TEMPLATE
    return told


def model(vocabulary: int) -> LlamaForCausalLM:
    """Random weights from a fixed seed."""
    torch.manual_seed(0)
    made = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            bos_token_id=None,
            eos_token_id=1,
            tie_word_embeddings=False,
        )
    )
    with torch.no_grad():
        made.lm_head.weight[1] = 0
    made.generation_config.do_sample = False
    return made.to(torch.bfloat16)


def main() -> None:
    """Write both into the folder."""
    folder, *words = sys.argv[1:]
    told = tokenizer(words)
    told.save_pretrained(folder)
    model(len(told)).save_pretrained(folder)


if __name__ == "__main__":
    main()
