# The C++ libraries inside a PyTorch wheel, as imported targets: torch::cpu and, where the wheel has it, torch::cuda.
#
# find_package(Torch) of the CUDA wheel wants a CUDA toolkit at configure time and then links the system's NCCL;
# linking the wheel's own libraries directly works with and without one. Torch's libgomp is linked too: a process
# must have one OpenMP runtime.
#
#   TOPOMASK_PYTHON   the Python that has torch: the one that pip runs in where it builds, else the environment
#                     variable of that name, else what scripts/setup.sh chose, else .venv of this project, else python3
#
# Sets TORCH_ROOT (the folder of the Python package), TORCH_VERSION, and TORCH_NCCL_INCLUDE: the folder of nccl.h in the
# wheel of NCCL that torch brings along, or nothing.

set(_supported_min 2.11)
set(_supported_max 2.13)

set(TOPOMASK_PYTHON "$ENV{TOPOMASK_PYTHON}" CACHE FILEPATH "The Python interpreter that has torch")
if(DEFINED SKBUILD)
  set(TOPOMASK_PYTHON ${Python_EXECUTABLE})
elseif(NOT TOPOMASK_PYTHON)
  set(_python "")
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/.setup/python)
    file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/.setup/python _python LIMIT_COUNT 1)
  endif()
  if(NOT EXISTS "${_python}")
    set(_python ${CMAKE_CURRENT_SOURCE_DIR}/.venv/bin/python)
  endif()
  if(NOT EXISTS "${_python}")
    find_program(_python3 python3 REQUIRED)
    set(_python ${_python3})
  endif()
  set(TOPOMASK_PYTHON ${_python} CACHE FILEPATH "" FORCE)
endif()

execute_process(
  COMMAND ${TOPOMASK_PYTHON} -c
    "import importlib.util as u, os; p = os.path.dirname(u.find_spec('torch').origin); v = {}; exec(open(p + '/version.py').read(), v); print(p + ';' + v['__version__'])"
  OUTPUT_VARIABLE _torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _failed)
if(_failed)
  message(FATAL_ERROR "${TOPOMASK_PYTHON} has no torch; run scripts/setup.sh, or set TOPOMASK_PYTHON to a Python that "
                      "has torch ${_supported_min} to ${_supported_max}")
endif()
list(GET _torch 0 TORCH_ROOT)
list(GET _torch 1 TORCH_VERSION)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" _torch_minor "${TORCH_VERSION}")
if(_torch_minor VERSION_LESS _supported_min OR _torch_minor VERSION_GREATER _supported_max)
  message(FATAL_ERROR "torch ${TORCH_VERSION} of ${TOPOMASK_PYTHON} is not supported; "
                      "topomask builds with torch ${_supported_min} to ${_supported_max}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchLibraries REQUIRED_VARS TORCH_ROOT VERSION_VAR TORCH_VERSION)

if(NOT TARGET torch::cpu)
  add_library(torch::cpu INTERFACE IMPORTED)
  target_include_directories(torch::cpu SYSTEM INTERFACE
    ${TORCH_ROOT}/include ${TORCH_ROOT}/include/torch/csrc/api/include)
  target_link_libraries(torch::cpu INTERFACE ${TORCH_ROOT}/lib/libtorch_cpu.so ${TORCH_ROOT}/lib/libc10.so)
  file(GLOB _gomp ${TORCH_ROOT}/lib/libgomp*.so* ${TORCH_ROOT}/../torch.libs/libgomp*.so*)
  if(_gomp)
    list(GET _gomp 0 _gomp)
  else()
    set(_gomp gomp)  # a torch that was built on this machine uses the compiler's runtime
  endif()
  target_link_libraries(torch::cpu INTERFACE ${_gomp})
endif()
# Not the system's: it may be of another version than torch's.
find_path(TORCH_NCCL_INCLUDE nccl.h PATHS ${TORCH_ROOT}/../nvidia/nccl/include NO_DEFAULT_PATH)
mark_as_advanced(TORCH_NCCL_INCLUDE)
if(NOT TARGET torch::cuda AND EXISTS ${TORCH_ROOT}/lib/libtorch_cuda.so)
  add_library(torch::cuda INTERFACE IMPORTED)
  # Nothing of ours calls into libtorch_cuda: it registers its kernels when it is loaded, so it must be. What it needs in turn
  # (NCCL, cuDNN) comes from the wheels beside torch; the linker may see other versions in the toolkit, and should not look.
  target_link_libraries(torch::cuda INTERFACE torch::cpu ${TORCH_ROOT}/lib/libc10_cuda.so
    -Wl,--push-state,--no-as-needed ${TORCH_ROOT}/lib/libtorch_cuda.so -Wl,--pop-state -Wl,--allow-shlib-undefined)
endif()
