# The CUDA half: nvcc and headers from a toolkit (a partial one will do), libcudart from torch's own
# wheels. Libcudart is linked by full path and never statically, because a second runtime in the
# process would have its own streams and contexts; libcuda is never linked.
#
# Sets FTAX_HAVE_CUDA, FTAX_CUDA_WHEEL_INCLUDE; target ftax::cuda.
set(FTAX_CUDA "AUTO" CACHE STRING "Build the CUDA parts: AUTO, ON or OFF")
set_property(CACHE FTAX_CUDA PROPERTY STRINGS AUTO ON OFF)
set(FTAX_HAVE_CUDA OFF)

if(FTAX_CUDA STREQUAL "OFF")
  message(STATUS "ftax: CUDA parts off (FTAX_CUDA=OFF)")
  return()
endif()
if(NOT FTAX_TORCH_CUDA)
  if(FTAX_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FTAX_CUDA=ON, but torch ${FTAX_TORCH_VERSION} is a CPU build: "
      "install a CUDA build of torch, or leave FTAX_CUDA at AUTO")
  endif()
  message(STATUS "ftax: torch ${FTAX_TORCH_VERSION} is a CPU build, building the CPU core only")
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER)
  find_program(FTAX_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin
    PATHS /usr/local/cuda-${FTAX_TORCH_CUDA} /usr/local/cuda)
  if(FTAX_NVCC)
    set(CMAKE_CUDA_COMPILER "${FTAX_NVCC}")
  elseif(FTAX_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FTAX_CUDA=ON, but there is no nvcc: set CUDACXX or CUDA_HOME")
  else()
    message(WARNING "ftax: torch ${FTAX_TORCH_VERSION} has CUDA but no nvcc was found, building the "
      "CPU core only (set CUDACXX or CUDA_HOME, then reinstall)")
    return()
  endif()
endif()
string(REGEX MATCH "^[0-9]+" _ftax_major "${FTAX_TORCH_CUDA}")
execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --version OUTPUT_VARIABLE _ftax_nvcc_version)
string(REGEX MATCH "release ([0-9]+)" _ftax_release "${_ftax_nvcc_version}")
if(_ftax_release AND NOT CMAKE_MATCH_1 EQUAL _ftax_major)
  # Functions of one name take other arguments in another major version of the runtime.
  set(_ftax_reason "torch ${FTAX_TORCH_VERSION} is built with CUDA ${FTAX_TORCH_CUDA}, but "
    "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_MATCH_1}: set CUDACXX to an nvcc of CUDA "
    "${_ftax_major}, then reinstall")
  if(FTAX_CUDA STREQUAL "ON")
    message(FATAL_ERROR ${_ftax_reason})
  endif()
  message(WARNING "ftax: building the CPU core only. " ${_ftax_reason})
  return()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-virtual;90-real")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY None)
enable_language(CUDA)

# The toolkit's headers come before the wheel's: the wheels of CUDA 13 lack the crt/ headers.
get_filename_component(_ftax_nvcc "${CMAKE_CUDA_COMPILER}" REALPATH)
get_filename_component(_ftax_root "${_ftax_nvcc}/../.." ABSOLUTE)
if(CMAKE_CUDA_COMPILER_TOOLKIT_ROOT)
  set(_ftax_root "${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT}")
endif()
get_filename_component(_ftax_site "${FTAX_TORCH_DIR}" DIRECTORY)
find_path(FTAX_CUDA_INCLUDE cuda_runtime_api.h NO_DEFAULT_PATH
  PATHS "${_ftax_root}/include" "${_ftax_root}/targets/x86_64-linux/include"
        ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
find_file(FTAX_CUDART NAMES libcudart.so.${_ftax_major} NO_DEFAULT_PATH
  PATHS "${_ftax_site}/nvidia/cu${_ftax_major}/lib" "${_ftax_site}/nvidia/cuda_runtime/lib"
        "${_ftax_root}/lib64" "${_ftax_root}/targets/x86_64-linux/lib")
if(NOT FTAX_CUDA_INCLUDE OR NOT FTAX_CUDART)
  message(FATAL_ERROR "CUDA pieces are missing: cuda_runtime_api.h is '${FTAX_CUDA_INCLUDE}', "
    "libcudart.so.${_ftax_major} is '${FTAX_CUDART}'; set CUDA_HOME to a toolkit, or FTAX_CUDA=OFF")
endif()
set(FTAX_CUDA_WHEEL_INCLUDE "${_ftax_site}/nvidia/cu${_ftax_major}/include"
  "${_ftax_site}/nvidia/cuda_cupti/include" "${_ftax_site}/nvidia/cuda_runtime/include")  # CUDA 12's
ftax_import_torch_library(c10_cuda)
ftax_import_torch_library(torch_cuda)
add_library(ftax::lib_cudart SHARED IMPORTED)
set_target_properties(ftax::lib_cudart PROPERTIES IMPORTED_LOCATION "${FTAX_CUDART}")
add_library(ftax_cuda_interface INTERFACE)
add_library(ftax::cuda ALIAS ftax_cuda_interface)
target_include_directories(ftax_cuda_interface SYSTEM INTERFACE "${FTAX_CUDA_INCLUDE}")
target_link_libraries(ftax_cuda_interface INTERFACE
  ftax::lib_torch_cuda ftax::lib_c10_cuda ftax::lib_cudart)
set(FTAX_HAVE_CUDA ON)
message(STATUS "ftax: CUDA parts on, nvcc ${CMAKE_CUDA_COMPILER_VERSION}, "
  "architectures ${CMAKE_CUDA_ARCHITECTURES}")
