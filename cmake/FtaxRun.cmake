# ftax_add_run(<root>) makes the libraries of `ftax run`: ftax_sampler, and, where cupti.h is found,
# ftax_watch. They go into programs that bring any C++ library of their own, so they carry theirs.
function(ftax_add_run root)
  file(GLOB _sampler CONFIGURE_DEPENDS "${root}/csrc/sampler/*.cpp")
  add_library(ftax_sampler SHARED ${_sampler})
  set(_targets ftax_sampler)
  foreach(_header cupti cuda)
    string(TOUPPER "FTAX_${_header}_H_INCLUDE" _variable)
    find_path(${_variable} ${_header}.h NO_DEFAULT_PATH HINTS ENV CUDA_HOME ENV CUDA_PATH
      PATHS ${FTAX_CUDA_INCLUDE} ${FTAX_CUDA_WHEEL_INCLUDE} /usr/local/cuda
      PATH_SUFFIXES include extras/CUPTI/include targets/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux/include)
  endforeach()
  if(FTAX_CUPTI_H_INCLUDE AND FTAX_CUDA_H_INCLUDE)
    file(GLOB _watch CONFIGURE_DEPENDS "${root}/csrc/watch/*.cpp")
    add_library(ftax_watch SHARED ${_watch} "${root}/csrc/cupti/library.cpp")
    target_include_directories(ftax_watch SYSTEM PRIVATE
      "${FTAX_CUDA_H_INCLUDE}" "${FTAX_CUPTI_H_INCLUDE}")
    list(APPEND _targets ftax_watch)
  else()
    message(STATUS "ftax: cupti.h or cuda.h not found, `ftax run` will see no device (set CUDA_HOME)")
  endif()
  find_package(Threads REQUIRED)
  foreach(_target ${_targets})
    target_include_directories(${_target} PRIVATE "${root}/csrc")
    target_compile_options(${_target} PRIVATE -Wall -Wextra -Wconversion -fvisibility=hidden)
    target_link_options(${_target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL)
    target_link_libraries(${_target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  endforeach()
endfunction()
