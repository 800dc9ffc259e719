#include "web/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gyrostat::web {
namespace {

using ::testing::HasSubstr;

Request Post() {
  Request request;
  request.method = "POST";
  request.path = "/api/interventions/run/1/approve";
  request.host = "127.0.0.1:7432";
  request.origin = "http://127.0.0.1:7432";
  request.fetch_site = "same-origin";
  request.marker = "1";
  request.content_type = "application/json";
  return request;
}

int StatusOf(const Request& request) {
  const std::optional<Reply> refusal = Refuse(request);
  if (!refusal) return 200;
  EXPECT_EQ(refusal->content_type, "application/json");
  EXPECT_THAT(refusal->body, ::testing::StartsWith("{\"error\":\""));
  return refusal->status;
}

TEST(Guard, LetsOurOwnPageAndProgramsPass) {
  EXPECT_EQ(StatusOf(Post()), 200);
  Request curl = Post();
  curl.origin = curl.fetch_site = "";
  EXPECT_EQ(StatusOf(curl), 200);
  curl.content_type = "Application/JSON; charset=utf-8";
  EXPECT_EQ(StatusOf(curl), 200);
  Request forwarded = Post();
  forwarded.host = "localhost:9000";
  forwarded.origin = "http://localhost:9000";
  EXPECT_EQ(StatusOf(forwarded), 200) << "ssh -L gives it another port";
  Request read;
  read.method = "GET";
  read.path = "/api/runs";
  EXPECT_EQ(StatusOf(read), 200);
}

TEST(Guard, RefusesPagesFromElsewhere) {
  for (const char* origin : {"http://evil.example", "null", "http://127.0.0.1:3000", "https://127.0.0.1:7432",
                             "http://127.0.0.1:7432.evil.example", "http://localhost:7432"}) {
    Request request = Post();
    request.origin = origin;
    EXPECT_EQ(StatusOf(request), 403) << origin;
    request.method = "GET";
    EXPECT_EQ(StatusOf(request), 403) << origin << " may not read either";
  }
  for (const char* site : {"cross-site", "same-site", "what"}) {
    Request request = Post();
    request.origin = "";
    request.fetch_site = site;
    EXPECT_EQ(StatusOf(request), 403) << site;
  }
}

TEST(Guard, WantsItsHeaderAndJson) {
  for (const char* marker : {"", "0", "true", "1, 1"}) {
    Request request = Post();
    request.marker = marker;
    EXPECT_EQ(StatusOf(request), 403) << marker;
  }
  for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                           "application/jsonp", "text/plain; a=application/json"}) {
    Request request = Post();
    request.content_type = type;
    EXPECT_EQ(StatusOf(request), 415) << type;
  }
  Request packed = Post();
  packed.content_encoding = "gzip";
  EXPECT_EQ(StatusOf(packed), 415);
  Request nameless = Post();
  nameless.host = nameless.origin = "";
  EXPECT_EQ(StatusOf(nameless), 400);
}

TEST(Guard, RefusesOtherMethodsAndEndlessPaths) {
  for (const char* method : {"PUT", "DELETE", "PATCH", "OPTIONS"}) {
    Request request = Post();
    request.method = method;
    EXPECT_EQ(StatusOf(request), 405) << method;
  }
  Request request = Post();
  request.path = "/api/" + std::string(508, 'a');
  EXPECT_EQ(StatusOf(request), 414);
  request.path.pop_back();
  EXPECT_EQ(StatusOf(request), 200);
}

TEST(Guard, SaysWhatItSawWithoutControlCharacters) {
  Request request = Post();
  request.origin = "http://a\x1b[31m" + std::string(200, 'b');
  const std::string body = Refuse(request)->body;
  EXPECT_THAT(body, HasSubstr("http://a?[31mbbb"));
  EXPECT_LT(body.size(), 300u);
}

}  // namespace
}  // namespace gyrostat::web
