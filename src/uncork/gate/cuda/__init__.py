"""The CUDA fabric: every GPU its own process, as inference servers have it; driver API only, no torch.

AMD is designed for and left out: the same ranks and operations over HIP (hipIpcOpenMemHandle, hipMemcpyAsync,
hiprtc for the kernels) would be a second rank program beside `rank.py`.
"""
