#include "logs/reader.h"

#include <algorithm>
#include <array>

#include "logs/csv.h"
#include "logs/deepspeed.h"
#include "logs/document.h"
#include "logs/fairseq.h"
#include "logs/jsonl.h"
#include "logs/llmc.h"
#include "logs/megatron.h"
#include "logs/nanogpt.h"
#include "logs/plain_text.h"
#include "logs/sniff.h"
#include "logs/tensorboard.h"
#include "logs/text_reader.h"
#include "logs/torchtitan.h"

namespace gyrostat::logs {
namespace {

constexpr std::array<std::pair<Format, const char*>, 15> kTokens = {
    {{Format::kAuto, "auto"}, {Format::kHfTrainer, "hf-trainer"}, {Format::kMegatron, "megatron"},
     {Format::kDeepspeed, "deepspeed"}, {Format::kLlmc, "llmc"}, {Format::kNanogpt, "nanogpt"},
     {Format::kTorchtitan, "torchtitan"}, {Format::kFairseq, "fairseq"}, {Format::kJsonl, "jsonl"},
     {Format::kJson, "json"}, {Format::kCsv, "csv"}, {Format::kWandb, "wandb"},
     {Format::kTensorboard, "tensorboard"}, {Format::kText, "text"}, {Format::kGyrostat, "gyrostat"}}};

constexpr std::array<Format, 15> kFormats = {
    Format::kAuto, Format::kHfTrainer, Format::kMegatron, Format::kDeepspeed, Format::kLlmc, Format::kNanogpt,
    Format::kTorchtitan, Format::kFairseq, Format::kJsonl, Format::kJson, Format::kCsv, Format::kWandb,
    Format::kTensorboard, Format::kText, Format::kGyrostat};

}  // namespace

std::span<const Format> Formats() { return kFormats; }

const char* Token(Format format) {
  for (const auto& [each, token] : kTokens)
    if (each == format) return token;
  return "";
}

std::optional<Format> FormatOf(std::string_view token) {
  for (const auto& [each, name] : kTokens)
    if (name == token) return each;
  return std::nullopt;
}

std::unique_ptr<Reader> MakeReader(Format format, RecordSink* sink) {
  const auto text = [sink](std::unique_ptr<LineParser> parser) {
    return std::make_unique<TextReader>(sink, std::move(parser));
  };
  switch (format) {
    case Format::kAuto: return std::make_unique<AutoReader>(sink);
    case Format::kHfTrainer:
    case Format::kJson: return std::make_unique<DocumentReader>(sink);
    case Format::kJsonl:
    case Format::kGyrostat: return std::make_unique<JsonlReader>(sink);
    case Format::kCsv:
    case Format::kWandb: return std::make_unique<CsvReader>(sink);
    case Format::kTensorboard: return std::make_unique<TensorboardReader>(sink);
    case Format::kMegatron: return text(MakeMegatron());
    case Format::kDeepspeed: return text(MakeDeepspeed());
    case Format::kLlmc: return text(MakeLlmc());
    case Format::kNanogpt: return text(MakeNanogpt());
    case Format::kTorchtitan: return text(MakeTorchtitan());
    case Format::kFairseq: return text(MakeFairseq());
    case Format::kText: break;
  }
  return text(MakePlainText());
}

}  // namespace gyrostat::logs
