# ftax_find_cupti_headers(<more directories>...) looks for cupti.h and cuda.h.
macro(ftax_find_cupti_headers)
  foreach(_header cupti cuda)
    string(TOUPPER "FTAX_${_header}_H_INCLUDE" _variable)
    find_path(${_variable} ${_header}.h NO_DEFAULT_PATH HINTS ENV CUDA_HOME ENV CUDA_PATH
      PATHS ${ARGN} /usr/local/cuda
      PATH_SUFFIXES include extras/CUPTI/include targets/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux/include)
  endforeach()
endmacro()

# The tracing of kernels: needs the header cupti.h, no GPU and no library (that is opened at run
# time). It is a library of its own, outside the extension, so that the C++ tests drive it against a
# fake CUPTI on any machine that has the header.
#
# ftax_add_cupti(<more include directories>...) makes the target ftax_cupti if it finds cupti.h; a
# later call with more directories tries again.
function(ftax_add_cupti)
  if(TARGET ftax_cupti)
    return()
  endif()
  ftax_find_cupti_headers(${ARGN})
  if(NOT FTAX_CUPTI_H_INCLUDE OR NOT FTAX_CUDA_H_INCLUDE)
    message(STATUS "ftax: cupti.h or cuda.h not found, the tracing of kernels is left out (set "
      "CUDA_HOME to a toolkit)")
    return()
  endif()
  file(GLOB _sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/csrc/cupti/*.cpp")
  add_library(ftax_cupti STATIC ${_sources})
  # The directory of cuda.h first: it is a toolkit's wherever there is one (see FtaxCuda.cmake).
  target_include_directories(ftax_cupti SYSTEM PUBLIC
    "${FTAX_CUDA_H_INCLUDE}" "${FTAX_CUPTI_H_INCLUDE}")
  target_link_libraries(ftax_cupti PUBLIC ftax_core ${CMAKE_DL_LIBS})
  target_compile_options(ftax_cupti PRIVATE -Wall -Wextra -Wconversion -fvisibility=hidden)
  message(STATUS "ftax: tracing of kernels on, ${FTAX_CUPTI_H_INCLUDE}/cupti.h")
endfunction()
