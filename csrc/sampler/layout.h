// Where things lie in the memory of a Python process: offsets in bytes, which differ between minor
// versions. Whoever starts a sampler fills this in (python/ftax_run/src/ftax_run/layouts.py).
#pragma once

#include <cstdint>

namespace ftax::sampler {

// A C struct of plain numbers: it is filled in by ctypes, in this order.
struct Layout {
  int32_t runtime_interpreter;
  int32_t interpreter_threads;
  int32_t thread_next;
  int32_t thread_frame;
  int32_t cframe_frame;  // -1 where a thread points to its frame itself (from 3.13)
  int32_t thread_native_id;
  int32_t thread_chunk;
  int32_t frame_previous;
  int32_t frame_code;
  int32_t frame_instruction;
  int32_t frame_owner;
  int32_t frame_size;  // without local variables
  int32_t owned_by_c;  // what `frame_owner` holds for a frame that is none of Python's; -1: nothing
  int32_t object_type;
  int32_t code_filename;
  int32_t code_qualname;
  int32_t code_first_line;
  int32_t code_line_table;
  int32_t code_bytes;
  int32_t text_length;
  int32_t text_state;
  int32_t text_ascii;    // where the characters of ASCII text begin
  int32_t text_compact;  // and of other text
  int32_t bytes_size;
  int32_t bytes_data;
};

// At the start of each block that frames of a thread lie in, the same in all versions.
struct ChunkHead {
  uint64_t previous;
  uint64_t size;
  uint64_t top;  // of a block that is full: how many words of it are used
};

}  // namespace ftax::sampler
