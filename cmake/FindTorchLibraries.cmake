# The C++ libraries inside a PyTorch wheel, as one imported target: torch::cpu.
#
# find_package(Torch) of the CUDA wheel wants a CUDA toolkit at configure time and then links the system's NCCL;
# linking the wheel's own libraries directly works with and without one. Torch's libgomp is linked too: a process
# must have one OpenMP runtime.
#
#   TOPOMASK_PYTHON   the Python that has torch (default: .venv here, else python3)

set(_supported_min 2.11)
set(_supported_max 2.13)

set(TOPOMASK_PYTHON "$ENV{TOPOMASK_PYTHON}" CACHE FILEPATH "The Python interpreter that has torch")
if(NOT TOPOMASK_PYTHON)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/.venv/bin/python)
    set(TOPOMASK_PYTHON ${CMAKE_CURRENT_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "" FORCE)
  else()
    find_program(_python3 python3 REQUIRED)
    set(TOPOMASK_PYTHON ${_python3} CACHE FILEPATH "" FORCE)
  endif()
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
  list(GET _gomp 0 TORCH_OPENMP_LIBRARY)
  target_link_libraries(torch::cpu INTERFACE ${TORCH_OPENMP_LIBRARY})
endif()
