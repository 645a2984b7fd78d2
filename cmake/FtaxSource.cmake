# Finds the commit that is built, so that an installed ftax can name it in every result. It may also
# be told, since a tree that was copied to the machine which measures seldom has its .git:
# CMAKE_ARGS="-DFTAX_SOURCE_COMMIT=$(git rev-parse HEAD)".
#
# Sets FTAX_COMMIT (empty if unknown) and FTAX_DIRTY (ON or OFF).
set(FTAX_COMMIT "${FTAX_SOURCE_COMMIT}")
unset(FTAX_SOURCE_COMMIT CACHE)  # or later builds in this folder would still name that commit
set(FTAX_DIRTY OFF)

find_program(FTAX_GIT git)
if(NOT FTAX_COMMIT AND FTAX_GIT AND EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/.git")
  execute_process(COMMAND "${FTAX_GIT}" rev-parse --verify --quiet HEAD
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    OUTPUT_VARIABLE FTAX_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(
    COMMAND "${FTAX_GIT}" --no-optional-locks status --porcelain -- python csrc CMakeLists.txt
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    OUTPUT_VARIABLE _ftax_changes ERROR_QUIET)
  if(FTAX_COMMIT AND _ftax_changes)
    set(FTAX_DIRTY ON)
  endif()
endif()
