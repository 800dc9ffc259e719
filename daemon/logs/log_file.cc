#include "logs/log_file.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "logs/sniff.h"

namespace gyrostat::logs {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;

// zlib reads plain files as they are.
class GzFile {
 public:
  explicit GzFile(const std::string& path) : file_(path == "-" ? gzdopen(0, "rb") : gzopen(path.c_str(), "rb")) {}
  ~GzFile() {
    if (file_ != nullptr) gzclose_r(file_);
  }
  GzFile(const GzFile&) = delete;
  GzFile& operator=(const GzFile&) = delete;

  bool open() const { return file_ != nullptr; }
  int Read(std::vector<char>* chunk) { return gzread(file_, chunk->data(), static_cast<unsigned>(chunk->size())); }
  uint64_t bytes_done() const { return static_cast<uint64_t>(gzoffset(file_)); }
  // Empty: none. A gzip file that ends too early is an error only at the end.
  std::string Error() const {
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    if (code == Z_OK || code == Z_STREAM_END) return "";
    return code == Z_ERRNO ? std::strerror(errno) : text;
  }

 private:
  gzFile file_;
};

// Nothing was found: what was looked for, and what there is instead.
std::string NoRows(const ReadOutcome& outcome, const Assembler& assembler) {
  std::string error = "no step with a loss, gradient norm or other signal in it; it was read as ";
  error += Token(outcome.format);
  const std::vector<std::string>& names = assembler.unknown_names();
  if (names.empty()) return error + ", and no name with a number was found. Is it a training log? See --format";
  error += ". It has";
  for (size_t i = 0; i < names.size(); ++i) error += (i == 0 ? " " : ", ") + names[i];
  return error + ". Say what is what with --map, as --map loss=" + names[0] + " --map step=...";
}

}  // namespace

std::string BaseName(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

ReadOutcome ReadLog(const std::string& path, const ReadOptions& options, RowSink* sink, const Progress& progress) {
  ReadOutcome outcome;
  outcome.format = options.format;
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    outcome.error = path + ": it is a directory, wanted a log file";
    return outcome;
  }
  GzFile file(path);
  if (!file.open()) {
    outcome.error = path + ": " + std::strerror(errno);
    return outcome;
  }
  const uintmax_t size = path == "-" ? 0 : std::filesystem::file_size(path, code);
  Assembler assembler(path == "-" ? "stdin" : BaseName(path), options.keys, sink);
  AutoReader automatic(&assembler);
  const std::unique_ptr<Reader> given =
      options.format == Format::kAuto ? nullptr : MakeReader(options.format, &assembler);
  Reader* reader = given ? given.get() : &automatic;
  std::vector<char> chunk(kChunkBytes);
  int got = 0;
  while (automatic.error().empty() && (got = file.Read(&chunk)) > 0) {
    reader->Feed({chunk.data(), static_cast<size_t>(got)});
    if (progress) progress(file.bytes_done(), code ? 0 : size);
  }
  const std::string broken = file.Error();
  reader->Finish();
  assembler.Finish();
  if (!given) outcome.format = automatic.format();
  outcome.losses = assembler.losses();
  if (!broken.empty() && assembler.rows() == 0) {
    outcome.error = path + ": it cannot be read: " + broken;
  } else if (!automatic.error().empty()) {
    outcome.error = path + ": " + automatic.error();
  } else if (assembler.rows() == 0) {
    outcome.error = path + ":1: " + NoRows(outcome, assembler);
  } else if (!broken.empty()) {
    outcome.losses.warnings.push_back("the file could not be read to its end (" + broken +
                                      "); what came before was read");
  }
  return outcome;
}

}  // namespace gyrostat::logs
