# Warnings and sanitizers, carried by one interface target that every target of ours links privately.
add_library(topomask_compiler_settings INTERFACE)
# Torch's headers then include the operators they use and not all of them.
target_compile_definitions(topomask_compiler_settings INTERFACE AT_PER_OPERATOR_HEADERS)
target_compile_options(topomask_compiler_settings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion>
  # a * b + c must round the same in every instruction set, or walks would differ between machines
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # It takes the vector<bool> inside torch::autograd::Function::apply for one that is too short.
  target_compile_options(topomask_compiler_settings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-stringop-overflow>)
endif()
if(TOPOMASK_WERROR)
  # GCC 12 warns about overlapping copies inside std::string where there are none (GCC bug 105651).
  target_compile_options(topomask_compiler_settings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror;-Wno-error=restrict>)
endif()
if(TOPOMASK_SANITIZE)
  target_compile_options(topomask_compiler_settings INTERFACE
    -fsanitize=${TOPOMASK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(topomask_compiler_settings INTERFACE -fsanitize=${TOPOMASK_SANITIZE})
  # Highway compiles a kernel once for every instruction set, which takes minutes with sanitizers: AVX2 beside the baseline.
  target_compile_definitions(topomask_compiler_settings INTERFACE
    HWY_DISABLED_TARGETS=HWY_SSSE3|HWY_SSE4|HWY_AVX3|HWY_AVX3_DL)
endif()

# Torch ships headers of its own fmt, which would shadow the system's and then miss their functions at link time. A
# folder that holds only the system's fmt goes in front of them.
find_path(TOPOMASK_FMT_INCLUDE fmt/format.h NO_CACHE REQUIRED)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/system-headers)
file(CREATE_LINK ${TOPOMASK_FMT_INCLUDE}/fmt ${CMAKE_BINARY_DIR}/system-headers/fmt SYMBOLIC)
include_directories(BEFORE SYSTEM ${CMAKE_BINARY_DIR}/system-headers)

# topomask_reader_library(name): settings of a static library of readers, which is free of torch and can be fuzzed.
function(topomask_reader_library name)
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE topomask_compiler_settings fmt::fmt)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)  # without torch there is little to share
  if(TOPOMASK_FUZZ)
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
                                           -fno-omit-frame-pointer)
  endif()
endfunction()
