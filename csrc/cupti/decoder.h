// Turns a buffer of CUPTI records into activities. It is pure: the two functions of CUPTI that it
// needs are passed in, so it runs on hand-made records where there is no GPU.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

#include "cupti/activities.h"

namespace ftax::cupti {

struct RecordReader {
  decltype(&cuptiActivityGetNextRecord) next_record;
  decltype(&cuptiGetCallbackName) callback_name;
};

// Appends the records of one buffer to `activities`.
void decode_buffer(const RecordReader& reader, uint8_t* buffer, size_t valid_bytes,
                   Activities& activities);

}  // namespace ftax::cupti
