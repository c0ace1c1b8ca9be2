// The devices that this build of the library can compute on.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace topomask {

// Whether the library holds CUDA kernels, and whether there is a GPU to run them on.
bool cuda_is_built();
bool cuda_is_available();

// "cpu", "cuda" or "cuda:1". Throws where the word is none of these, where the library was built without
// CUDA, or where there is no such GPU.
c10::Device parse_device(const std::string& word);

// Waits until the device has done what it was given; at once for the CPU.
void synchronise(c10::Device device);

// Most bytes that torch held on a GPU since the last reset; 0 for the CPU, or where there is no GPU.
std::int64_t peak_memory(c10::Device device);
void reset_peak_memory(c10::Device device);

// Bytes that a GPU could still give: what no one holds, and what torch holds without using it. 0 for the CPU,
// or where there is no GPU.
std::int64_t free_memory(c10::Device device);

// "NVIDIA H200"; "" for the CPU.
std::string device_name(c10::Device device);
// "AMD EPYC 9V84 96-Core Processor"; "" where the system does not tell.
std::string cpu_model();

}  // namespace topomask
