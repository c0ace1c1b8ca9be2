# MuJoCo's C headers and shared library inside its Python wheel: in the folder TOPOMASK_MUJOCO (that of the package), in the
# Python that has torch (FindTorchLibraries.cmake), or where scripts/setup.sh put it. Optional: without it everything but
# `topomask simulate` works. The library is opened at run time, so nothing links it.
#
# Sets Mujoco_FOUND, MUJOCO_INCLUDE_DIR, MUJOCO_LIBRARY and MUJOCO_SUPPORTED_VERSION, the one that scripts/requirements.txt names
# (wheels from version 4 on hold neither headers nor library).
set(TOPOMASK_MUJOCO "$ENV{TOPOMASK_MUJOCO}" CACHE PATH "The folder of the Python package mujoco")

file(STRINGS ${PROJECT_SOURCE_DIR}/scripts/requirements.txt _pinned REGEX "^mujoco==")
string(REPLACE "mujoco==" "" MUJOCO_SUPPORTED_VERSION "${_pinned}")
set(_folders "${TOPOMASK_MUJOCO}")
if(NOT _folders)
  execute_process(
    COMMAND ${TOPOMASK_PYTHON} -c
      "import importlib.util as u, os; print(os.path.dirname(u.find_spec('mujoco').origin))"
    OUTPUT_VARIABLE _folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND _folders ${PROJECT_SOURCE_DIR}/.setup/mujoco/mujoco)
endif()

set(Mujoco_FOUND FALSE)
foreach(_folder ${_folders})
  if(NOT Mujoco_FOUND AND EXISTS ${_folder}/include/mujoco/mujoco.h
     AND EXISTS ${_folder}/libmujoco.so.${MUJOCO_SUPPORTED_VERSION})
    set(Mujoco_FOUND TRUE)
    set(MUJOCO_INCLUDE_DIR ${_folder}/include)
    set(MUJOCO_LIBRARY ${_folder}/libmujoco.so.${MUJOCO_SUPPORTED_VERSION})
  endif()
endforeach()
if(NOT Mujoco_FOUND)
  message(NOTICE "MuJoCo ${MUJOCO_SUPPORTED_VERSION} was not found: `topomask simulate` will say so "
    "(scripts/setup.sh installs it, or -DTOPOMASK_MUJOCO=FOLDER)")
endif()
