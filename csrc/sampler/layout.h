// Where things lie in the memory of a Python process: offsets in bytes, which differ between minor
// versions. Whoever starts a sampler fills this in (python/ftax_run/src/ftax_run/layouts.py).
#pragma once

#include <cstdint>

namespace ftax::sampler {

// A C struct of plain numbers: it is filled in by ctypes, in this order.
struct Layout {
  uint32_t runtime_interpreter;
  uint32_t interpreter_threads;
  uint32_t thread_next;
  uint32_t thread_frame;
  int32_t cframe_frame;  // -1 where a thread points to its frame itself (from 3.13)
  uint32_t thread_native_id;
  uint32_t thread_chunk;
  uint32_t frame_previous;
  uint32_t frame_code;
  uint32_t frame_instruction;
  uint32_t frame_owner;
  uint32_t frame_size;  // without local variables
  int32_t owned_by_c;   // from this value of `frame_owner` on, a frame is C's; -1: no frame is
  uint32_t object_type;
  uint32_t code_filename;
  uint32_t code_qualname;
  uint32_t code_first_line;
  uint32_t code_line_table;
  uint32_t code_bytes;
  uint32_t text_length;
  uint32_t text_state;
  uint32_t text_ascii;    // where the characters of ASCII text begin
  uint32_t text_compact;  // and of other text
  uint32_t bytes_size;
  uint32_t bytes_data;
};

// At the start of each block that frames of a thread lie in, the same in all versions.
struct ChunkHead {
  uint64_t previous;
  uint64_t size;
  uint64_t top;  // of a block that is full: how many words of it are used
};

}  // namespace ftax::sampler
