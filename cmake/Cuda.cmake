# Decides whether the CUDA kernels are built, and how. Sets TOPOMASK_WITH_CUDA.
#
# AUTO builds them where they can run and is silent elsewhere: no GPU on this machine, no nvcc, a torch without CUDA, or a
# sanitizer build (which is about the host code). ON needs no GPU.
#
#   TOPOMASK_CUDA_ARCHITECTURES   machine code for the H200, and portable code that the driver translates for any other
#                                 device from compute capability 8.0 on; -DTOPOMASK_CUDA_ARCHITECTURES=90 builds faster
set(TOPOMASK_CUDA_ARCHITECTURES "80-virtual;90-real" CACHE STRING "What nvcc compiles for")
set(TOPOMASK_WITH_CUDA OFF)
if(TOPOMASK_CUDA STREQUAL "OFF" OR (TOPOMASK_CUDA STREQUAL "AUTO" AND TOPOMASK_SANITIZE))
  return()
endif()
if(TOPOMASK_CUDA STREQUAL "AUTO" AND NOT EXISTS /dev/nvidia0)
  # Under WSL a GPU has no such file.
  execute_process(COMMAND nvidia-smi -L OUTPUT_VARIABLE gpus ERROR_QUIET RESULT_VARIABLE failed)
  if(failed OR NOT gpus MATCHES "GPU 0")
    return()
  endif()
endif()

find_program(TOPOMASK_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT TARGET torch::cuda OR NOT TOPOMASK_NVCC)
  if(NOT TOPOMASK_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "TOPOMASK_CUDA=${TOPOMASK_CUDA} needs nvcc (found: ${TOPOMASK_NVCC}) and a torch with CUDA "
                        "(torch ${TORCH_VERSION} of ${TOPOMASK_PYTHON})")
  endif()
  return()
endif()

set(CMAKE_CUDA_COMPILER ${TOPOMASK_NVCC})
set(CMAKE_CUDA_ARCHITECTURES ${TOPOMASK_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # torch's own: two runtimes in one process would not share streams
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# CMake before 3.26 does not know how to ask nvcc for C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
set(TOPOMASK_WITH_CUDA ON)

# topomask_exact_rounding(file...): no a * b + c in these CUDA sources is fused, so that they round as the CPU does.
function(topomask_exact_rounding)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY topomask PROPERTIES COMPILE_OPTIONS --fmad=false)
endfunction()

# topomask_warpgroup_sources(file... ASKED_BY file...): CUDA sources of the library for compute capability 9.0 alone, whose
# warpgroup instructions (the "a" of sm_90a) neither earlier devices nor later ones have. Where nothing is built for 9.0
# they are left out; elsewhere those that ask for them see TOPOMASK_WARPGROUP.
function(topomask_warpgroup_sources)
  cmake_parse_arguments(PARSE_ARGV 0 warpgroup "" "" ASKED_BY)
  if(NOT TOPOMASK_CUDA_ARCHITECTURES MATCHES "(^|;)(90|all|native)")
    return()
  endif()
  add_library(topomask_warpgroup OBJECT ${warpgroup_UNPARSED_ARGUMENTS})
  set_target_properties(topomask_warpgroup PROPERTIES UNITY_BUILD OFF)
  target_include_directories(topomask_warpgroup PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(topomask_warpgroup PRIVATE topomask_compiler_settings)
  target_compile_definitions(topomask_warpgroup PRIVATE TOPOMASK_WARPGROUP)
  # CMake before 3.26 does not know the architecture's name.
  set_target_properties(topomask_warpgroup PROPERTIES CUDA_ARCHITECTURES OFF)
  target_compile_options(topomask_warpgroup PRIVATE -gencode=arch=compute_90a,code=sm_90a)
  target_sources(topomask PRIVATE $<TARGET_OBJECTS:topomask_warpgroup>)
  set_source_files_properties(${warpgroup_ASKED_BY} TARGET_DIRECTORY topomask
    PROPERTIES COMPILE_DEFINITIONS TOPOMASK_WARPGROUP)
endfunction()
