# topomask_commit(result): the commit of the source tree, such as "96e3370", or "96e3370+changes" where files that git
# knows were changed when this was configured; "" without git. A later commit configures again.
function(topomask_commit result)
  set(${result} "" PARENT_SCOPE)
  find_package(Git QUIET)
  # A tree without .git may lie inside another repository, whose commit says nothing.
  if(NOT Git_FOUND OR NOT EXISTS ${PROJECT_SOURCE_DIR}/.git)
    return()
  endif()
  set(git ${GIT_EXECUTABLE} -C ${PROJECT_SOURCE_DIR} --no-optional-locks)
  execute_process(COMMAND ${git} rev-parse --short HEAD
    RESULT_VARIABLE failed OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(failed)
    return()
  endif()
  execute_process(COMMAND ${git} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    string(APPEND commit "+changes")
  endif()
  execute_process(COMMAND ${git} rev-parse --git-path logs/HEAD
    OUTPUT_VARIABLE log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  get_filename_component(log "${log}" ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
  if(EXISTS ${log} AND NOT IS_DIRECTORY ${log})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${log})
  endif()
  set(${result} ${commit} PARENT_SCOPE)
endfunction()
