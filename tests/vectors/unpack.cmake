# Unpacks the folders of vectors that are committed as archives (pack.py), beside the archives. The stamp in a folder is the
# SHA-256 of its archive. A folder without a stamp may have new vectors, so it is not replaced.
foreach(name classifiers encoders hf_tokenizers)
    set(archive ${CMAKE_SOURCE_DIR}/tests/vectors/${name}.tar.xz)
    set(folder ${CMAKE_SOURCE_DIR}/tests/vectors/${name})
    if(NOT EXISTS ${archive}) # a build of the program alone
        continue()
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${archive})
    file(SHA256 ${archive} digest)
    set(unpacked)
    if(EXISTS ${folder}/.unpacked)
        file(READ ${folder}/.unpacked unpacked)
    elseif(EXISTS ${folder})
        message(FATAL_ERROR "${folder} has no stamp of its archive. If its vectors are new, run "
                            "'python3 tests/vectors/pack.py ${name}'; otherwise remove the folder.")
    endif()
    # After a checkout of a commit that has the folder itself and then of a newer one, only the stamp is there.
    file(GLOB files ${folder}/*)
    list(REMOVE_ITEM files ${folder}/.unpacked)
    if(NOT files OR NOT unpacked STREQUAL digest)
        file(REMOVE_RECURSE ${folder})
        file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${CMAKE_SOURCE_DIR}/tests/vectors)
        file(WRITE ${folder}/.unpacked ${digest})
    endif()
endforeach()
