#include "tape/written_arguments.h"

#include <algorithm>

namespace ftax {
namespace {

bool is_set(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
            const std::string& flag) {
  const std::optional<int> place = schema.argumentIndexWithName(flag);
  return place.has_value() && arguments.at(static_cast<size_t>(*place)).toBool();
}

}  // namespace

const std::unordered_map<std::string, UndeclaredWrites>& list_undeclared_writes() {
  static const std::vector<std::string> kStatistics{"running_mean", "running_var"};
  static const std::unordered_map<std::string, UndeclaredWrites> kOperators{
      {"aten::batch_norm", {"training", kStatistics}},
      {"aten::_batch_norm_impl_index", {"training", kStatistics}},
      {"aten::native_batch_norm", {"training", kStatistics}},
      {"aten::cudnn_batch_norm", {"training", kStatistics}},
      {"aten::miopen_batch_norm", {"training", kStatistics}},
      {"aten::batch_norm_update_stats", {"", kStatistics}},
      {"aten::batch_norm_gather_stats", {"", kStatistics}},
      {"aten::batch_norm_gather_stats_with_counts", {"", kStatistics}},
      {"aten::instance_norm", {"", kStatistics}},  // the mean of what it made for each sample
      {"aten::_cudnn_rnn", {"train", {"dropout_state"}}},
      {"aten::miopen_rnn", {"train", {"dropout_state"}}},
      {"c10d::allreduce_", {"", {"tensors"}}},
      {"c10d::allreduce_coalesced_", {"", {"tensors"}}},
      {"c10d::broadcast_", {"", {"tensors"}}},
      {"c10d::reduce_", {"", {"tensors"}}},
      {"c10d::_allgather_base_", {"", {"output_tensor"}}},
      {"c10d::allgather_into_tensor_coalesced_", {"", {"outputs"}}},
      {"c10d::_reduce_scatter_base_", {"", {"output_tensor"}}},
      {"c10d::reduce_scatter_tensor_coalesced_", {"", {"outputs"}}},
      {"c10d::alltoall_base_", {"", {"output"}}},
  };
  return kOperators;
}

std::vector<bool> find_written(const c10::OperatorHandle& op,
                               c10::ArrayRef<c10::IValue> arguments) {
  const c10::FunctionSchema& schema = op.schema();
  std::vector<bool> written;
  for (const c10::Argument& argument : schema.arguments()) {
    const c10::AliasInfo* alias = argument.alias_info();
    written.push_back(alias != nullptr && alias->isWrite());
  }
  const auto found = list_undeclared_writes().find(op.operator_name().name);
  if (found == list_undeclared_writes().end()) return written;
  const auto& [flag, names] = found->second;
  if (!flag.empty() && !is_set(schema, arguments, flag)) return written;
  for (size_t i = 0; i < written.size(); ++i) {
    if (std::ranges::count(names, schema.arguments()[i].name())) written[i] = true;
  }
  return written;
}

}  // namespace ftax
