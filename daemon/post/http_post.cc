#include "post/http_post.h"

#include <curl/curl.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

namespace gyrostat::post {
namespace {

constexpr size_t kErrorBytesMax = 300;
constexpr size_t kAnswerBytesMax = 8192;  // Well over that: what is cut out of it must not be cut in two.
constexpr size_t kSecretBytesMax = 16'384;
constexpr long kRetryAfterMaxSeconds = 600;  // A server that asks for more is asked again sooner.

size_t TakeAnswer(char* data, size_t, size_t size, void* text) {
  auto* answer = static_cast<std::string*>(text);
  answer->append(data, std::min(size, kAnswerBytesMax - std::min(answer->size(), kAnswerBytesMax)));
  return size;  // The rest is read and forgotten.
}

int StopIfAsked(void* stop, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const std::atomic<bool>*>(stop)->load() ? 1 : 0;
}

// One line of what a server said, printable.
std::string OneLine(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

// What follows the host: servers like to repeat it, and in it may stand a secret.
std::string PathOf(const std::string& url) {
  const size_t host = url.find("://");
  const size_t path = host == std::string::npos ? host : url.find('/', host + 3);
  return path == std::string::npos ? "" : url.substr(path);
}

void CutOut(const std::string& secret, std::string* text) {
  if (secret.size() < 4) return;  // "/" is none.
  for (size_t at = text->find(secret); at != std::string::npos; at = text->find(secret, at))
    text->replace(at, secret.size(), "(...)");
}

}  // namespace

struct HttpPost::Impl {
  Impl(Target t, const std::atomic<bool>* s) : target(std::move(t)), stop(s), curl(curl_easy_init()) {
    if (curl == nullptr) return;
    const auto set = [this](CURLoption option, auto value) { curl_easy_setopt(curl, option, value); };
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_POST, 1L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(target.timeout.count()));
    set(CURLOPT_USERAGENT, target.user_agent.c_str());
    set(CURLOPT_ERRORBUFFER, error);
    set(CURLOPT_WRITEFUNCTION, &TakeAnswer);
    set(CURLOPT_WRITEDATA, static_cast<void*>(&answer));
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &StopIfAsked);
    set(CURLOPT_XFERINFODATA, static_cast<void*>(const_cast<std::atomic<bool>*>(stop)));
    if (!target.ca_file.empty()) set(CURLOPT_CAINFO, target.ca_file.c_str());
  }
  ~Impl() { curl_easy_cleanup(curl); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // The reason why there is none; empty: it is set.
  std::string SetUrl() {
    url = target.url;
    if (url.empty() && !ReadSecret(target.url_file, &url)) return "no URL can be read from " + target.url_file;
    if (const std::string problem = UrlProblem(url); !problem.empty())
      return (target.url.empty() ? target.url_file + ": " : "") + problem;
    curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
    return "";
  }

  // The same of the credentials.
  std::string SetCredentials() {
    secret.clear();
    if (!target.token_file.empty()) {
      if (!ReadSecret(target.token_file, &secret)) return "no token can be read from " + target.token_file;
      curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
      curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, secret.c_str());
    } else if (!target.username.empty()) {
      if (!ReadSecret(target.password_file, &secret)) return "no password can be read from " + target.password_file;
      curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
      curl_easy_setopt(curl, CURLOPT_USERNAME, target.username.c_str());
      curl_easy_setopt(curl, CURLOPT_PASSWORD, secret.c_str());
    }
    return "";
  }

  std::string Told(std::string text) const {
    CutOut(url, &text);
    CutOut(PathOf(url), &text);
    CutOut(secret, &text);
    return text.substr(0, kErrorBytesMax);
  }

  const Target target;
  const std::atomic<bool>* const stop;
  CURL* const curl;
  char error[CURL_ERROR_SIZE] = "";
  std::string answer;
  std::string url, secret;  // Of the request under way.
};

HttpPost::HttpPost(Target target, const std::atomic<bool>* stop)
    : impl_(std::make_unique<Impl>(std::move(target), stop)) {}
HttpPost::~HttpPost() = default;

PostResult HttpPost::Post(const std::string& body, const std::vector<std::string>& headers) {
  PostResult result;
  CURL* const curl = impl_->curl;
  if (curl == nullptr) return {0, "libcurl cannot be set up", {}};
  if (result.error = impl_->SetUrl(); !result.error.empty()) return result;
  if (result.error = impl_->SetCredentials(); !result.error.empty()) return result;
  curl_slist* list = curl_slist_append(nullptr, "Expect:");
  for (const std::string& header : headers) list = curl_slist_append(list, header.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list);
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data());
  impl_->answer.clear();
  impl_->error[0] = '\0';
  const CURLcode code = curl_easy_perform(curl);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, nullptr);
  curl_slist_free_all(list);
  if (code != CURLE_OK) {
    result.error = impl_->Told(impl_->error[0] != '\0' ? impl_->error : curl_easy_strerror(code));
    return result;
  }
  long status = 0;
  curl_off_t retry_after = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &retry_after);
  result.status = static_cast<int>(status);
  if (!result.taken()) result.error = "HTTP " + std::to_string(status) + " " + impl_->Told(OneLine(impl_->answer));
  result.retry_after = base::Milliseconds(1000 * std::clamp<curl_off_t>(retry_after, 0, kRetryAfterMaxSeconds));
  return result;
}

bool ReadSecret(const std::string& path, std::string* secret) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  *secret = text.substr(0, text.find_first_of("\r\n"));
  return file.good() && !secret->empty() && secret->size() <= kSecretBytesMax;
}

std::string UrlProblem(const std::string& url) {
  if (url.empty()) return "";
  CURLU* parts = curl_url();
  char* user = nullptr;
  char* scheme = nullptr;
  std::string problem;
  if (curl_url_set(parts, CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
      (std::string(scheme) != "http" && std::string(scheme) != "https")) {
    problem = "saw no URL of http or https";
  } else if (curl_url_get(parts, CURLUPART_USER, &user, 0) == CURLUE_OK) {
    problem = "saw credentials in a URL: they belong in a file";
  }
  curl_free(user);
  curl_free(scheme);
  curl_url_cleanup(parts);
  return problem;
}

}  // namespace gyrostat::post
