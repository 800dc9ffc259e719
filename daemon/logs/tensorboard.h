// TensorBoard event files: scalars as simple_value (PyTorch, TF1) and as rank-0 tensors (TF2, JAX). A torn last record
// is accepted, checksums are checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "logs/reader.h"
#include "logs/tfrecord.h"

namespace gyrostat::logs {

class TensorboardReader : public Reader {
 public:
  explicit TensorboardReader(RecordSink* sink) : sink_(sink) {}
  void Feed(std::string_view bytes) override;
  void Finish() override;

 private:
  void OnEvent(std::string_view event);

  RecordSink* sink_;
  TfrecordSplitter splitter_;
  Record record_;
  uint64_t number_ = 0;  // Of the record, from 1.
  bool lost_ = false;
};

// The number in a TensorProto of one element; nothing for strings, shapes and types without one.
std::optional<double> ScalarOfTensor(std::string_view tensor);

}  // namespace gyrostat::logs
