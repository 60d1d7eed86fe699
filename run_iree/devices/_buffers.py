"""Moves bytes between NumPy arrays and buffers of a device."""

from types import MappingProxyType
from typing import Final

import numpy as np
from iree.runtime import (
    BufferUsage,
    HalBuffer,
    HalBufferView,
    HalDevice,
    HalElementType,
    HalFence,
    MemoryType,
)

from lang_core import DType, TensorSpec, bf16, bool_, f16, f32, f64, i8, i32, i64, plain_bools, u8

_ELEMENT_TYPES: Final = MappingProxyType(
    {
        f16: HalElementType.FLOAT_16,
        bf16: HalElementType.BFLOAT_16,
        f32: HalElementType.FLOAT_32,
        f64: HalElementType.FLOAT_64,
        i8: HalElementType.SINT_8,
        u8: HalElementType.UINT_8,
        i32: HalElementType.SINT_32,
        i64: HalElementType.SINT_64,
        bool_: HalElementType.BOOL_8,
    }
)

_BYTE: Final = np.dtype(np.uint8)


def element_type(dtype: DType) -> HalElementType:
    """Returns IREE's name of a dtype."""
    return _ELEMENT_TYPES[dtype]


def upload(device: HalDevice, array: np.ndarray, spec: TensorSpec) -> HalBufferView:
    """Copies an array of the spec's shape and dtype to the device."""
    if spec.nbytes == 0:
        buffer = _allocate(device, 0)
    else:  # as bytes, as IREE does not know the dtypes of ml_dtypes
        data = np.ascontiguousarray(plain_bools(array)).reshape(-1).view(_BYTE)
        buffer = device.allocator.allocate_buffer_copy(
            memory_type=MemoryType.DEVICE_LOCAL, allowed_usage=BufferUsage.DEFAULT, device=device, buffer=data
        )
        assert isinstance(buffer, HalBuffer)  # a view only if an element type is given
    return HalBufferView(buffer, spec.shape, element_type(spec.dtype))


def writable(device: HalDevice, spec: TensorSpec) -> tuple[HalBufferView, np.ndarray]:
    """Allocates zeros of this shape on a device that works in host memory; returns the buffer and its memory.

    The memory is valid as long as the buffer.
    """
    view = upload(device, np.zeros(spec.shape, spec.dtype.numpy), spec)
    return view, peek(device, view, spec)


def duplicate(device: HalDevice, view: HalBufferView, spec: TensorSpec) -> HalBufferView:
    """Copies a buffer on the device."""
    copy = _allocate(device, spec.nbytes)
    _copy_and_wait(device, view.get_buffer(), copy, spec.nbytes)
    return HalBufferView(copy, spec.shape, element_type(spec.dtype))


def read_back(device: HalDevice, view: HalBufferView, spec: TensorSpec) -> np.ndarray:
    """Returns a copy of a buffer's contents: a writable array of its shape that owns its memory."""
    return np.array(peek(device, view, spec), copy=True)


def peek(device: HalDevice, view: HalBufferView, spec: TensorSpec) -> np.ndarray:
    """Returns a buffer's contents, of its shape; a view if the host reaches them, valid as long as the buffer."""
    if spec.nbytes == 0:
        return np.empty(spec.shape, spec.dtype.numpy)
    buffer = view.get_buffer()
    if not is_mappable(buffer):
        # IREE's own DeviceArray imports host memory instead, which fails on alignment on Vulkan.
        staging = device.allocator.allocate_buffer(
            memory_type=int(MemoryType.HOST_LOCAL | MemoryType.DEVICE_VISIBLE),
            allowed_usage=int(BufferUsage.TRANSFER_TARGET | BufferUsage.MAPPING_SCOPED),
            allocation_size=spec.nbytes,
        )
        _copy_and_wait(device, buffer, staging, spec.nbytes)
        buffer = staging
    return buffer.map().asarray((spec.nbytes,), _BYTE).view(spec.dtype.numpy).reshape(spec.shape)


def address(view: HalBufferView) -> int | None:
    """Returns the buffer's address in host memory, or None if the host cannot reach it."""
    buffer = view.get_buffer()
    if not is_mappable(buffer) or view.byte_length == 0:
        return None
    return buffer.map().asarray((view.byte_length,), _BYTE).ctypes.data


def is_mappable(buffer: HalBuffer) -> bool:
    """Returns whether the host can read the buffer without a copy."""
    usage = int(BufferUsage.MAPPING_SCOPED)
    return bool(buffer.memory_type() & int(MemoryType.HOST_VISIBLE) and int(buffer.allowed_usage()) & usage)


def _allocate(device: HalDevice, nbytes: int) -> HalBuffer:
    return device.allocator.allocate_buffer(
        memory_type=MemoryType.DEVICE_LOCAL, allowed_usage=BufferUsage.DEFAULT, allocation_size=nbytes
    )


def _copy_and_wait(device: HalDevice, source: HalBuffer, target: HalBuffer, nbytes: int) -> None:
    if nbytes == 0:
        return
    semaphore = device.create_semaphore(0)
    done = HalFence.create_at(semaphore, 1)
    device.queue_copy(source, target, wait_semaphores=HalFence.create_at(semaphore, 0), signal_semaphores=done)
    done.wait()
