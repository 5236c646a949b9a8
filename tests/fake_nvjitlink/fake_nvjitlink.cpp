// A stand-in for nvJitLink: what it makes of PTX is no machine code, but can be told apart, and it fails when it is told to.
//
//   FAKE_NVJITLINK_CRASH=FILE   aborts while FILE is there with a number above 0, which it lowers by one each time
//   FAKE_NVJITLINK_REFUSE=TEXT  complains about all PTX with this
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace {

struct Link {
  std::string arch, ptx, log;
};

void crash_when_told() {
  const char* file = std::getenv("FAKE_NVJITLINK_CRASH");
  if (file == nullptr) return;
  int left = 0;
  std::ifstream(file) >> left;
  if (left <= 0) return;
  std::ofstream(file) << left - 1;
  std::fputs("fake_nvjitlink: told to crash\n", stderr);
  std::abort();
}

std::string report(const Link& link) {
  std::string log;
  const std::string entry = ".entry ";
  for (size_t at = link.ptx.find(entry); at != std::string::npos; at = link.ptx.find(entry, at + 1)) {
    const size_t begin = at + entry.size();
    const std::string name = link.ptx.substr(begin, link.ptx.find('(', begin) - begin);
    log += "info : Compiling entry function '" + name + "' for '" + link.arch + "'\ninfo : Function properties for " + name +
           "\ninfo :     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\ninfo : Used 24 registers, 512 bytes smem\n";
  }
  return log;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API nvJitLinkVersion(unsigned* major, unsigned* minor) {
  *major = 98;
  *minor = 7;
  return 0;
}

API nvJitLinkCreate(Link** link, uint32_t count, const char** options) {
  *link = new Link;
  for (uint32_t i = 0; i < count; ++i)
    if (std::strncmp(options[i], "-arch=", 6) == 0) (*link)->arch = options[i] + 6;
  return 0;
}

API nvJitLinkDestroy(Link** link) {
  delete *link;
  *link = nullptr;
  return 0;
}

API nvJitLinkAddData(Link* link, int, const void* data, size_t size, const char*) {
  link->ptx.assign(static_cast<const char*>(data), size - 1);
  return 0;
}

API nvJitLinkComplete(Link* link) {
  crash_when_told();
  if (const char* complaint = std::getenv("FAKE_NVJITLINK_REFUSE")) {
    link->log = complaint;
    return 1;
  }
  link->log = report(*link);
  return 0;
}

API nvJitLinkGetLinkedCubinSize(Link* link, size_t* size) {
  *size = link->ptx.size();
  return 0;
}

// Every value of a byte is in it, in some PTX.
API nvJitLinkGetLinkedCubin(Link* link, void* out) {
  for (size_t i = 0; i < link->ptx.size(); ++i)
    static_cast<char*>(out)[i] = static_cast<char>(link->ptx[i] + static_cast<char>(i));
  return 0;
}

API nvJitLinkGetErrorLogSize(Link* link, size_t* size) {
  *size = link->log.size() + 1;
  return 0;
}

API nvJitLinkGetErrorLog(Link* link, char* out) {
  std::memcpy(out, link->log.c_str(), link->log.size() + 1);
  return 0;
}

API nvJitLinkGetInfoLogSize(Link* link, size_t* size) { return nvJitLinkGetErrorLogSize(link, size); }
API nvJitLinkGetInfoLog(Link* link, char* out) { return nvJitLinkGetErrorLog(link, out); }
