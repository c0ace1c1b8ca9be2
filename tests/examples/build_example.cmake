# Install, configure, build, run: each must succeed.
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${TOPOMASK_BUILD} --prefix ${SCRATCH}/prefix)
run(${CMAKE_COMMAND} -S ${EXAMPLE} -B ${SCRATCH}/build -G Ninja -D CMAKE_CXX_COMPILER=${COMPILER}
    -D CMAKE_BUILD_TYPE=Release -D CMAKE_PREFIX_PATH=${SCRATCH}/prefix)
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run(${SCRATCH}/build/example)

# The installed program must find its libraries without help from the environment.
execute_process(COMMAND ${SCRATCH}/prefix/bin/topomask --version OUTPUT_VARIABLE printed RESULT_VARIABLE failed)
if(failed OR NOT printed MATCHES "${VERSION}")
  message(FATAL_ERROR "the installed topomask --version printed '${printed}' (status ${failed}), not ${VERSION}")
endif()
