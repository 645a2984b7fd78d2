# Makes sure that the extension uses the C++ standard library that torch has loaded. Some compilers
# ship only libstdc++.a and link it without a word. An extension with a copy of its own shares half
# of its symbols with torch's copy and crashes at the first stream, so the shared library is then
# looked up and linked by full path, ahead of the static one.
#
# Target ftax::standard_library.
add_library(ftax_standard_library INTERFACE)
add_library(ftax::standard_library ALIAS ftax_standard_library)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=libstdc++.so
    OUTPUT_VARIABLE _ftax_libstdcxx OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${_ftax_libstdcxx}")  # a bare name means: not found
    find_library(FTAX_LIBSTDCXX NAMES libstdc++.so.6
      PATHS /usr/lib/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu /usr/lib64 /usr/lib)
    if(NOT FTAX_LIBSTDCXX)
      message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has only a static libstdc++, with which a Python "
        "extension beside torch would crash: set CXX to a compiler that has the shared one")
    endif()
    target_link_libraries(ftax_standard_library INTERFACE "${FTAX_LIBSTDCXX}")
    message(STATUS "ftax: the compiler has a static libstdc++ only, linking ${FTAX_LIBSTDCXX}")
  endif()
endif()
