# cmake -DOUT=assets.cpp -DHEADER=assets.h -DNAMESPACE=a::b -DTEXTS="kA=file|file;kB=file" -P EmbedText.cmake
#
# Writes a C++ source in which each name is the text of its files, one after the other. Raw string literals keep the
# text as it is.
set(source "// Made by EmbedText.cmake.\n#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
foreach(entry IN LISTS TEXTS)
  string(REGEX MATCH "^([A-Za-z]+)=(.*)$" matched "${entry}")
  set(name ${CMAKE_MATCH_1})
  string(REPLACE "|" ";" files "${CMAKE_MATCH_2}")
  set(text "")
  foreach(file IN LISTS files)
    file(READ "${file}" content)
    string(APPEND text "${content}")
  endforeach()
  string(FIND "${text}" ")embedded\"" clash)
  if(NOT clash EQUAL -1)
    message(FATAL_ERROR "${files}: cannot be embedded, they hold the end of a raw string")
  endif()
  string(APPEND source "const std::string_view ${name} = R\"embedded(${text})embedded\";\n")
endforeach()
string(APPEND source "}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUT}" "${source}")
