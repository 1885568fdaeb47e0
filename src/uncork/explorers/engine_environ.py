"""Which environment variables of a server may be kept, and where its Python looks for packages."""

import re
from collections.abc import Iterable

from uncork.explorers.engine_argv import MASK, masked

# Names that tune or break serving. Everything else is never stored: environments hold tokens and keys.
_ALLOWED = re.compile(
    r"(NCCL|RCCL|CUDA|VLLM|SGLANG|SGL|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|OMP|MKL|OPENBLAS|NUMEXPR|KMP|GOMP"
    r"|NVSHMEM|UCX|GLOO|TP_SOCKET|HSA|HIP|ROCR|GPU_MAX_HW|MIOPEN|AITER|FLASHINFER|NVTE|NVIDIA|TLLM|TRTLLM"
    r"|LLAMA_ARG|GGML|OLLAMA|MALLOC|GLIBC|PYTHON|COVERAGE|NVTX|XLA|DG_JIT|DEEPGEMM|LD)_[A-Z0-9_]+"
    r"|LD_PRELOAD|LD_LIBRARY_PATH|TORCH_LOGS|RUST_LOG|PORT|HF_HUB_OFFLINE|HF_HOME|HF_HUB_ENABLE_HF_TRANSFER"
    r"|TRANSFORMERS_OFFLINE|TOKENIZERS_PARALLELISM|DO_NOT_TRACK|PYTHONDEVMODE|PYTHONASYNCIODEBUG|PYTHONMALLOC"
    r"|PYTHONTRACEMALLOC|PYTHONPROFILEIMPORTTIME|PYTHONUNBUFFERED|PYTHONPATH|PYTHONHASHSEED|TBB_[A-Z_]+"
    r"|https?_proxy|all_proxy|no_proxy|HTTPS?_PROXY|ALL_PROXY|NO_PROXY"
)
_SECRET_NAME = re.compile(r"KEY|TOKEN(?!IZ)|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|LICENSE")


def allowed(name: str) -> bool:
    """Whether a variable of this name may be stored."""
    return bool(_ALLOWED.fullmatch(name)) and not _SECRET_NAME.search(name)


def kept(text: str) -> dict[str, str]:
    """The allowed variables of a NUL-separated environment; a proxy address is masked."""
    variables = (entry.partition("=") for entry in text.split("\0"))
    found = {name: value for name, equals, value in variables if equals and allowed(name)}
    return {
        name: MASK if name.lower() in ("http_proxy", "https_proxy", "all_proxy") else masked(value)
        for name, value in sorted(found.items())
    }


# Distributions that decide what a server can do; the others are not recorded.
_PACKAGES = re.compile(
    r"(vllm|sglang|sgl_kernel|sglang_kernel|torch|triton|flashinfer(_python|_cubin|_jit_cache)?|flash_attn"
    r"(_3)?|vllm_flash_attn|xformers|tensorrt_llm|transformers|lmdeploy|llama_cpp_python|xllamacpp|deep_gemm"
    r"|deep_ep|aiter|xgrammar|outlines|llguidance|amdsmi|nixl|nvidia_\w+|text_generation_server|numpy"
    r"|huggingface_hub)-(\d[\w.+!]*)\.dist-info"
)


def packages_of(names: Iterable[str]) -> dict[str, str]:
    """Distribution versions from the file names of a site-packages folder, names in their PyPI spelling."""
    found: dict[str, str] = {}
    for name in names:
        if match := _PACKAGES.fullmatch(name):
            found[match[1].replace("_", "-")] = match.groups()[-1]
    return found
