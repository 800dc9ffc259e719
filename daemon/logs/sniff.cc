#include "logs/sniff.h"

#include <algorithm>
#include <array>
#include <vector>

#include "logs/csv.h"
#include "logs/deepspeed.h"
#include "logs/fairseq.h"
#include "logs/json_record.h"
#include "logs/json_scan.h"
#include "logs/keys.h"
#include "logs/lines.h"
#include "logs/llmc.h"
#include "logs/megatron.h"
#include "logs/nanogpt.h"
#include "logs/number.h"
#include "logs/tfrecord.h"
#include "logs/torchtitan.h"

namespace gyrostat::logs {
namespace {

constexpr std::string_view kLfsPointer = "version https://git-lfs";

bool Means(KeyMap* keys, const std::string& name) {
  const Meaning::Kind kind = keys->Find(name).kind;
  return kind == Meaning::Kind::kStep || kind == Meaning::Kind::kSignal;
}

// Of a file that begins with { or [{.
std::optional<Format> SniffJson(std::string_view text, bool whole) {
  RecordBuilder builder;
  JsonScanner scanner(&builder);
  if (text[0] == '[') return Format::kJson;
  const size_t used = scanner.Feed(text, true);
  const bool complete = !scanner.failed() && scanner.AtTop();
  if (!complete && !scanner.failed() && !whole) return std::nullopt;
  const std::string_view first = text.substr(0, used);
  if (first.find("\"log_history\"") != std::string_view::npos) return Format::kHfTrainer;
  if (!complete) return Format::kJson;
  if (IsHeader(builder.record)) return Format::kGyrostat;
  KeyMap keys({});
  bool row = false, current = false, total = false;
  for (size_t i = 0; i < builder.record.size(); ++i) {
    const Field& field = builder.record[i];
    row = row || (field.values.empty() && Means(&keys, field.key));
    current = current || field.key == "current_steps";
    total = total || field.key == "total_steps";
  }
  if (current && total) return Format::kHfTrainer;  // LLaMA-Factory's trainer_log.jsonl.
  const bool one_line = first.find('\n') == std::string_view::npos;
  return row && one_line ? Format::kJsonl : Format::kJson;
}

std::vector<std::string> CellsOf(std::string_view line, char separator) {
  std::vector<std::string> cells;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find(separator, begin), line.size());
    std::string_view cell = Trim(line.substr(begin, end - begin));
    if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') cell = cell.substr(1, cell.size() - 2);
    cells.emplace_back(cell);
    begin = end + 1;
  }
  return cells;
}

// Of two lines: a header that names something known, or names above numbers.
std::optional<Format> SniffCsv(std::string_view header, std::string_view second) {
  const char separator = SeparatorOf(header);
  if (separator == 0) return std::nullopt;
  const std::vector<std::string> names = CellsOf(header, separator), values = CellsOf(second, separator);
  KeyMap keys({});
  bool known = false, wandb = false;
  for (const std::string& name : names) {
    if (name.empty() && &name != &names[0]) return std::nullopt;
    if (WholeNumber(name) || name.size() > 200) return std::nullopt;
    const size_t dash = name.rfind(" - ");
    known = known || Means(&keys, dash == std::string::npos ? name : name.substr(dash + 3));
    wandb = wandb || name == "_step" || (dash != std::string::npos && dash > 0);
  }
  const auto is_number = [](const std::string& cell) { return WholeNumber(cell).has_value(); };
  const bool numbers = names.size() == values.size() && std::ranges::any_of(values, is_number);
  if (!known && !numbers) return std::nullopt;
  if (!numbers && !second.empty() && values.size() != names.size()) return std::nullopt;
  return wandb ? Format::kWandb : Format::kCsv;
}

std::optional<Format> SniffLine(std::string_view line) {
  static constexpr std::array<std::pair<Format, bool (*)(std::string_view)>, 6> kTrainers = {
      {{Format::kMegatron, LooksLikeMegatron}, {Format::kTorchtitan, LooksLikeTorchtitan},
       {Format::kFairseq, LooksLikeFairseq}, {Format::kDeepspeed, LooksLikeDeepspeed},
       {Format::kLlmc, LooksLikeLlmc}, {Format::kNanogpt, LooksLikeNanogpt}}};
  for (const auto& [format, looks_like] : kTrainers)
    if (looks_like(line)) return format;
  return std::nullopt;
}

// The first `count` lines that are not blank, of whole lines only unless the text is whole.
std::vector<std::string_view> FirstLines(std::string_view text, size_t count, bool whole) {
  std::vector<std::string_view> lines;
  while (!text.empty() && lines.size() < count) {
    const size_t end = text.find_first_of("\r\n");
    if (end == std::string_view::npos && !whole) break;
    const std::string_view line = text.substr(0, end);
    if (!Trim(line).empty()) lines.push_back(line);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return lines;
}

std::optional<Format> SniffText(std::string_view text, bool whole) {
  const std::vector<std::string_view> lines = FirstLines(text, 2, whole);
  if (lines.size() < 2 && !whole) return std::nullopt;
  if (lines.empty()) return Format::kText;
  if (const auto csv = SniffCsv(lines[0], lines.size() > 1 ? lines[1] : std::string_view())) return csv;
  std::string scratch;
  std::optional<uint32_t> rank;
  while (!text.empty()) {
    const size_t end = text.find_first_of("\r\n");
    if (end == std::string_view::npos && !whole) return std::nullopt;
    if (const auto format = SniffLine(WithoutRank(WithoutAnsi(text.substr(0, end), &scratch), &rank))) return format;
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return whole ? std::optional(Format::kText) : std::nullopt;
}

// With its mark, as PowerShell's > writes it, or without: then every second byte of plain letters is a NUL.
bool IsUtf16(std::string_view head) {
  if (head.substr(0, 2) == "\xff\xfe" || head.substr(0, 2) == "\xfe\xff") return true;
  head = head.substr(0, 64);
  size_t even = 0, odd = 0;
  for (size_t i = 0; i < head.size(); ++i)
    if (head[i] == '\0') ++(i % 2 == 0 ? even : odd);
  const size_t half = head.size() / 2;
  return half >= 4 && ((odd == half && even == 0) || (even >= half && odd == 0));
}

bool IsBinary(std::string_view head) {
  size_t runs = 0;
  for (size_t i = 0; i < head.size(); ++i)
    if (head[i] == '\0' && (i == 0 || head[i - 1] != '\0')) ++runs;
  constexpr std::string_view kNothing("\0 \t\r\n", 5);
  return runs > kNulRunsMax || (runs > 0 && head.find_first_not_of(kNothing) == std::string_view::npos);
}

}  // namespace

std::optional<Format> Sniff(std::string_view head, bool whole, std::string* error) {
  if (head.size() < 12 && !whole) return std::nullopt;
  if (IsTfrecordHeader(head)) return Format::kTensorboard;
  if (head.substr(0, 3) == "\xef\xbb\xbf") head.remove_prefix(3);
  if (head.substr(0, kLfsPointer.size()) == kLfsPointer) {
    *error = "it is a Git LFS pointer, not the log; fetch the log with: git lfs pull";
    return std::nullopt;
  }
  if (IsUtf16(head)) {
    *error = "it is UTF-16, wanted UTF-8; turn it with: iconv -f UTF-16 -t UTF-8";
    return std::nullopt;
  }
  if (IsBinary(head.substr(0, kNulBytes))) {
    *error = "it is binary and no TensorBoard event file; wanted text, JSON, CSV or tfevents, as they are or gzipped";
    return std::nullopt;
  }
  const size_t begin = head.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) {
    if (whole) *error = "it is empty, wanted a training log";
    return std::nullopt;
  }
  const std::string_view text = head.substr(begin);
  const size_t second = text.find_first_not_of(" \t\r\n", 1);
  if (text[0] == '{' || (text[0] == '[' && second != std::string_view::npos && text[second] == '{'))
    return SniffJson(text, whole);
  return SniffText(head, whole);
}

void AutoReader::Decide(bool whole) {
  const auto format = Sniff(head_, whole, &error_);
  if (!format && error_.empty() && head_.size() >= kSniffBytesMax) {
    const auto last = Sniff(head_, true, &error_);
    format_ = last.value_or(Format::kAuto);
  } else if (format) {
    format_ = *format;
  }
  if (format_ == Format::kAuto) return;
  reader_ = MakeReader(format_, sink_);
  reader_->Feed(head_);
  head_ = std::string();
}

void AutoReader::Feed(std::string_view bytes) {
  if (reader_ != nullptr) return reader_->Feed(bytes);
  if (!error_.empty()) return;
  head_.append(bytes);
  if (head_.size() < ask_again_at_) return;
  Decide(false);
  ask_again_at_ = std::min(2 * head_.size(), kSniffBytesMax);  // Looking again at the same bytes stays cheap.
}

void AutoReader::Finish() {
  if (reader_ == nullptr && error_.empty()) Decide(true);
  if (reader_ != nullptr) reader_->Finish();
}

}  // namespace gyrostat::logs
