# Warnings and sanitizers, carried by one interface target that every target of ours links privately.
add_library(topomask_compiler_settings INTERFACE)
target_compile_options(topomask_compiler_settings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  # a * b + c must round the same in every instruction set, or walks would differ between machines
  -ffp-contract=off)
if(TOPOMASK_WERROR)
  target_compile_options(topomask_compiler_settings INTERFACE -Werror)
endif()
if(TOPOMASK_SANITIZE)
  target_compile_options(topomask_compiler_settings INTERFACE
    -fsanitize=${TOPOMASK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(topomask_compiler_settings INTERFACE -fsanitize=${TOPOMASK_SANITIZE})
endif()
