# Imported targets for the torch that the building Python would import (ftax_torch.py finds it). No
# find_package(Torch). Its CUDA half demands a whole toolkit, overrides CMAKE_CUDA_ARCHITECTURES,
# and leaves out libtorch_python.
#
# Sets FTAX_TORCH_DIR, FTAX_TORCH_VERSION, FTAX_TORCH_CUDA ("" for a CPU build); target ftax::torch.
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/ftax_torch.py"
  OUTPUT_VARIABLE _ftax_torch RESULT_VARIABLE _ftax_failed
  ERROR_VARIABLE _ftax_reason ERROR_STRIP_TRAILING_WHITESPACE)
if(_ftax_failed)
  message(FATAL_ERROR "${_ftax_reason}")
endif()
list(GET _ftax_torch 0 FTAX_TORCH_DIR)
list(GET _ftax_torch 1 FTAX_TORCH_VERSION)
list(GET _ftax_torch 2 FTAX_TORCH_CUDA)

function(ftax_import_torch_library name)
  set(path "${FTAX_TORCH_DIR}/lib/lib${name}.so")
  if(NOT EXISTS "${path}")
    message(FATAL_ERROR "${path} is missing: reinstall torch ${FTAX_TORCH_VERSION}")
  endif()
  add_library(ftax::lib_${name} SHARED IMPORTED)
  set_target_properties(ftax::lib_${name} PROPERTIES IMPORTED_LOCATION "${path}")
endfunction()
foreach(_name c10 torch_cpu torch torch_python)
  ftax_import_torch_library(${_name})
endforeach()

# torch bundles the pybind11 whose internals its own types live in; its headers come first, so
# extension and torch agree whatever `pip install pybind11` brought.
add_library(ftax_torch_interface INTERFACE)
add_library(ftax::torch ALIAS ftax_torch_interface)
target_include_directories(ftax_torch_interface SYSTEM INTERFACE
  "${FTAX_TORCH_DIR}/include" "${FTAX_TORCH_DIR}/include/torch/csrc/api/include")
target_link_libraries(ftax_torch_interface INTERFACE
  ftax::lib_torch_python ftax::lib_torch ftax::lib_torch_cpu ftax::lib_c10)
message(STATUS "ftax: torch ${FTAX_TORCH_VERSION}, CUDA '${FTAX_TORCH_CUDA}'")
