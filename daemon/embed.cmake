# Writes the source of gyrostat_embed (CMakeLists.txt): cmake -DROOM=ctl -DDIR=daemon/ctl -DFILES=assets/a.css,…
# -DOUT=… -P embed.cmake. Each file becomes `const base::Asset kACss`: its bytes, and the hash by which a
# Content-Security-Policy names it.

# 64 hex digits of a SHA-256 → base64: three digits are two characters; two zeros fill up, and "=" stands for the last.
function(base64_of_sha256 hex out)
  set(alphabet ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  set(text "")
  set(hex "${hex}00")
  foreach(at RANGE 0 63 3)
    string(SUBSTRING "${hex}" ${at} 3 digits)
    math(EXPR high "0x${digits} >> 6")
    math(EXPR low "0x${digits} & 63")
    string(SUBSTRING ${alphabet} ${high} 1 high)
    string(SUBSTRING ${alphabet} ${low} 1 low)
    string(APPEND text "${high}${low}")
  endforeach()
  string(SUBSTRING "${text}" 0 43 text)
  set(${out} "${text}=" PARENT_SCOPE)
endfunction()

set(source "#include \"${ROOM}/assets.h\"\n\nnamespace gyrostat::${ROOM} {\n")
string(REPLACE "," ";" FILES "${FILES}")
foreach(path IN LISTS FILES)
  get_filename_component(name ${path} NAME)
  string(REGEX MATCHALL "[A-Za-z0-9]+" words ${name})
  set(identifier k)
  foreach(word IN LISTS words)
    string(SUBSTRING ${word} 0 1 first)
    string(SUBSTRING ${word} 1 -1 rest)
    string(TOUPPER ${first} first)
    string(APPEND identifier ${first}${rest})
  endforeach()
  file(READ ${DIR}/${path} bytes HEX)
  file(SHA256 ${DIR}/${path} hash)
  base64_of_sha256(${hash} hash)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND source "static constexpr char ${identifier}Bytes[] = {${bytes}};\n"
                       "const base::Asset ${identifier} = {{${identifier}Bytes, sizeof ${identifier}Bytes}, "
                       "\"sha256-${hash}\"};\n")
endforeach()
file(WRITE ${OUT} "${source}}  // namespace gyrostat::${ROOM}\n")
